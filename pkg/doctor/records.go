// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/durable"
)

// listed is how many claims are named in one line.
const listed = 8

// Records checks what the driver has written down of claims, in that directory.
type Records string

// Examine implements Examiner.
func (r Records) Examine(context.Context) []Finding {
	dir := string(r)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return one(OK, "no claim was ever prepared in "+dir, "")
	}
	store, err := checkpoint.NewStore(dir, durable.Files{})
	if err != nil {
		return one(Problem, err.Error(), "let the driver write there")
	}
	listing, err := store.List()
	if err != nil {
		return one(Problem, err.Error(), "see whether the disk is sound")
	}
	found := one(OK, held(listing.Records), "")
	found = append(found, madeAgain(dir, listing.Records)...)
	for _, bad := range listing.Bad {
		found = append(found, unusable(dir, bad))
	}
	return found
}

func unusable(dir string, bad checkpoint.Bad) Finding {
	seen := fmt.Sprintf("the record of claim %s cannot be used: %v", bad.ClaimUID, bad.Err)
	if errors.Is(bad.Err, checkpoint.ErrNewer) {
		return Finding{Level: Problem, Seen: seen, Remedy: "run the newer driver again, which wrote it, or delete the claim's pods, which releases it; until then it cannot be prepared"}
	}
	if errors.Is(bad.Err, checkpoint.ErrUnreadable) {
		return Finding{Level: Problem, Seen: seen, Remedy: "see whether the disk is sound and the file may be read by root; other claims are not affected"}
	}
	return Finding{
		Level: Warning, Seen: seen,
		Remedy: "look at the content in " + filepath.Join(dir, "damaged") + ", then delete the claim's pods, which releases it and removes the file; other claims are not affected",
	}
}

// madeAgain names the claims whose record was damaged once and is sound now: the
// damaged one still lies there for somebody to look at.
func madeAgain(dir string, records []checkpoint.Record) []Finding {
	damaged := filepath.Join(dir, "damaged")
	entries, err := os.ReadDir(damaged)
	if err != nil {
		return one(Problem, fmt.Sprintf("list damaged records: %v", err), "see whether the disk is sound")
	}
	aside := map[string]bool{}
	for _, e := range entries {
		aside[strings.TrimSuffix(e.Name(), ".json")] = true
	}
	var names []string
	for _, r := range records {
		if aside[r.Claim.UID] {
			names = append(names, fmt.Sprintf("%s (claim %s)", filepath.Join(damaged, r.Claim.UID+".json"), r.Claim))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return one(Warning, number(len(names), "damaged record")+" set aside, and made again from the claim: "+some(names),
		"nothing for the pods, which go on; look at the file, for a sound disk damages none, then delete it")
}

// held names the claims, and how far those are that are on their way.
func held(records []checkpoint.Record) string {
	if len(records) == 0 {
		return "no claim holds a share"
	}
	names := make([]string, 0, len(records))
	for _, r := range records {
		name := r.Claim.String()
		if r.Phase != checkpoint.Prepared {
			name += " (" + string(r.Phase) + ")"
		}
		names = append(names, name)
	}
	return number(len(records), "claim") + " with shares: " + some(names)
}

// some are the first names of the alphabet, as many as a line takes.
func some(names []string) string {
	names = slices.Sorted(slices.Values(names))
	shown := names[:min(len(names), listed)]
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
