// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Events tells people, through the API server, what they should look at. It
// does not block and has no error: nothing depends on it.
type Events interface {
	Claim(claim share.Claim, reason, message string)
	Node(reason, message string)
}

// Reasons of events.
const (
	reasonNotServed  = "ShareNotServed"
	reasonUnreadable = "CardUnreadable"
	reasonOverLimit  = "MemoryOverLimit"
	reasonNotUsed    = "RuntimeNotUsed"
	reasonUnknown    = "UnknownProcess"
	reasonCompute    = "ComputeWithoutLease"
)

func reasonOf(kind Kind) string {
	switch kind {
	case OverLimit:
		return reasonOverLimit
	case NotAttached:
		return reasonNotUsed
	case Unknown:
		return reasonUnknown
	case ComputeWithoutLease:
		return reasonCompute
	}
	return string(kind)
}

// tellMisunderstood tells the owner of a share whose share.json cannot be used.
// Names are taken at face value: they decide only who is told.
func (a *Arbiter) tellMisunderstood(path string, key share.Key, reason error) {
	message := fmt.Sprintf("share %s is not served and its containers get no memory: %v. "+
		"A newer version needs a newer tranche-arbiter; anything else is put right by tranche-node when the pod is made again", key, reason)
	var document cdi.ShareDocument
	data, err := os.ReadFile(filepath.Join(path, cdi.ShareFileName))
	if err == nil && json.Unmarshal(data, &document) == nil && document.Claim.UID != "" {
		a.events.Claim(document.Claim, reasonNotServed, message)
		return
	}
	a.events.Node(reasonNotServed, message)
}
