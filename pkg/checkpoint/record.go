// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Version of the format that this code writes.
const Version = 1

// Errors that tell why a file is not a usable record.
var (
	// ErrDamaged: truncated, emptied, changed by something else, or never a record.
	ErrDamaged = errors.New("record is damaged")
	// ErrNewer: written by a newer driver, in a format that this one cannot read.
	ErrNewer = errors.New("record was written by a newer version")
	// ErrUnreadable: the file is there and the disk, or its permissions, do not
	// let it be read. It may be sound.
	ErrUnreadable = errors.New("record cannot be read")
	// ErrDirectoryGone: the directory was deleted under this process.
	ErrDirectoryGone = errors.New("the directory of records was deleted under this process")
)

// Phase is how far a claim is on its way.
type Phase string

const (
	// Preparing: room is held, files may or may not be there.
	Preparing Phase = "Preparing"
	// Prepared: everything that a container needs is there.
	Prepared Phase = "Prepared"
	// Unpreparing: files are being removed; there is no way back.
	Unpreparing Phase = "Unpreparing"
)

// Record is what the node knows of one claim.
type Record struct {
	Claim share.Claim `json:"claim"`
	Phase Phase       `json:"phase"`
	// BootID is the kernel's boot in which the claim was prepared. After a
	// reboot device nodes may have other numbers and /run is empty: what was
	// prepared before is prepared again.
	BootID string `json:"bootID"`
	// Shares in the order of the claim's allocation.
	Shares []share.Share `json:"shares"`
	// Runtime is the digest of the sharing runtime that the claim's containers
	// mount; empty where they mount none. Upgrades never change it.
	Runtime string `json:"runtime,omitempty"`
	// BurstCeiling is what the claim's owner has put in the place of the ceilings
	// of Shares since, in percent of a card; 0 where nobody has.
	BurstCeiling card.Percent `json:"burstCeiling,omitempty"`
}

// InForce are the claim's shares as their containers have them at present: Shares,
// with the ceiling that was set since where they take one.
func (r Record) InForce() []share.Share {
	if r.BurstCeiling == 0 {
		return r.Shares
	}
	shares := slices.Clone(r.Shares)
	for i := range shares {
		if shares[i].Policy.Bursts() {
			shares[i].BurstCeiling = r.BurstCeiling
		}
	}
	return shares
}

// envelope is the file. The checksum is over the version and the compact form
// of the record, in every version: a bit that flipped in the version would
// otherwise pass for the work of a newer driver.
type envelope struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Record   json.RawMessage `json:"record"`
}

func checksum(version int, compact []byte) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", version, compact))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Encode makes the content of a record's file. Equal records give equal bytes.
func Encode(r Record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of claim %s: %w", r.Claim, err)
	}
	data, err := json.MarshalIndent(envelope{Version: Version, Checksum: checksum(Version, body), Record: body}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode record of claim %s: %w", r.Claim, err)
	}
	return append(data, '\n'), nil
}

// Decode reads the content of the file of the claim with that UID. The error
// wraps ErrDamaged or ErrNewer.
func Decode(data []byte, claimUID string) (Record, error) {
	var env envelope
	if err := json.Unmarshal(data, &env); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, env.Record); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if got := checksum(env.Version, body.Bytes()); env.Version < 1 || got != env.Checksum {
		return Record{}, fmt.Errorf("%w: version %d, checksum %q where the content has %q", ErrDamaged, env.Version, env.Checksum, got)
	}
	if env.Version > Version {
		return Record{}, fmt.Errorf("%w: format %d, this driver reads up to %d; run the newer version again, or delete the pod", ErrNewer, env.Version, Version)
	}
	var r Record
	if err := json.Unmarshal(env.Record, &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if r.Claim.UID != claimUID {
		return Record{}, fmt.Errorf("%w: it is of claim %q, its name says %q", ErrDamaged, r.Claim.UID, claimUID)
	}
	switch r.Phase {
	case Preparing, Prepared, Unpreparing:
		return r, nil
	default:
		return Record{}, fmt.Errorf("%w: phase %q is none of Preparing, Prepared, Unpreparing", ErrDamaged, r.Phase)
	}
}
