// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	for _, bad := range listing.Bad {
		found = append(found, unusable(dir, bad))
	}
	return found
}

func unusable(dir string, bad checkpoint.Bad) Finding {
	seen := fmt.Sprintf("the record of claim %s cannot be used: %v", bad.ClaimUID, bad.Err)
	if errors.Is(bad.Err, checkpoint.ErrNewer) {
		return Finding{Level: Problem, Seen: seen, Remedy: "run the newer driver again, which wrote it; until then its claim can neither be prepared nor released"}
	}
	return Finding{
		Level: Warning, Seen: seen,
		Remedy: "delete the claim's pods, which releases it; other claims are not affected, and the content stays in " + filepath.Join(dir, "damaged"),
	}
}

// held names the claims, and how far those are that are on their way.
func held(records []checkpoint.Record) string {
	if len(records) == 0 {
		return "no claim holds a share"
	}
	names := make([]string, 0, min(len(records), listed))
	for _, r := range records[:cap(names)] {
		name := r.Claim.String()
		if r.Phase != checkpoint.Prepared {
			name += " (" + string(r.Phase) + ")"
		}
		names = append(names, name)
	}
	text := number(len(records), "claim") + " with shares: " + strings.Join(names, ", ")
	if more := len(records) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
