// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Policy says how compute is divided among the shares of one card.
type Policy string

const (
	// BestEffort has no compute limit: N busy shares get 1/N each of what is left over.
	BestEffort Policy = "best-effort"
	// Fixed is a ceiling as well as a floor: 20 % is at most 20 %, even on an idle card.
	Fixed Policy = "fixed-share"
	// GuaranteedBurst is a floor; idle compute may be used on top and is handed back.
	GuaranteedBurst Policy = "guaranteed-burst-share"
	// NativeBurst makes the percent a weight without a reservation.
	NativeBurst Policy = "native-burst-share"
)

// Policies in the order in which messages list them.
func Policies() []Policy { return []Policy{BestEffort, Fixed, GuaranteedBurst, NativeBurst} }

// Bursts tells whether a share of that policy may use compute past its own part,
// which a ceiling then bounds.
func (p Policy) Bursts() bool { return p == GuaranteedBurst || p == NativeBurst }

// Class is a share's priority on its card.
type Class string

const (
	// NoClass shares neither yield to others nor push them aside.
	NoClass Class = "none"
	// Online work runs before offline work.
	Online Class = "online"
	// Offline work runs in the gaps that online work leaves.
	Offline Class = "offline"
)

// Classes in the order in which messages list them.
func Classes() []Class { return []Class{NoClass, Online, Offline} }

// Claim names a ResourceClaim. The UID is the identity; namespace and name are
// for people, and may be used again by another claim.
type Claim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "namespace/name".
func (c Claim) String() string { return c.Namespace + "/" + c.Name }

// maxUID is the longest UID that names on the node have room for.
const maxUID = 128

// UsableUID tells whether a claim's UID can be part of the names of files and
// CDI devices: letters, digits and hyphens, as in the RFC 4122 text that the API
// server gives.
func UsableUID(uid string) bool {
	for i := range len(uid) {
		c := uid[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' && i > 0) {
			return false
		}
	}
	return uid != "" && len(uid) <= maxUID
}

// ID is the full identity of a share. One claim may hold the same card twice,
// told apart by ShareID; a card that is not shareable has no ShareID.
type ID struct {
	Claim Claim `json:"claim"`
	// Request is the request's name, "main/sub" for a subrequest.
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	ShareID string `json:"shareID,omitempty"`
}

// Key names a share on the node: its directory, its CDI device, its place in a
// container. It starts with the claim's UID, so that everything that belongs to
// a claim can be found without a record, and uses only characters that file
// systems and CDI accept.
type Key string

// Key of the share. A claim that was allocated a second time gets other share
// IDs and with them other keys, so nothing stale is ever taken for it.
func (id ID) Key() Key {
	sum := sha256.Sum256([]byte(strings.Join([]string{id.Request, id.Pool, id.Device, id.ShareID}, "\x00")))
	return Key(id.Claim.UID + "-" + hex.EncodeToString(sum[:5]))
}

// ClaimUID is the UID of the claim that the key is one of, false where the key
// is not of the form that ID.Key makes.
func (k Key) ClaimUID() (string, bool) {
	i := strings.LastIndexByte(string(k), '-')
	if i < 0 || len(k)-i != 1+2*5 || strings.Trim(string(k[i+1:]), "0123456789abcdef") != "" {
		return "", false
	}
	uid := string(k[:i])
	return uid, UsableUID(uid)
}

// BelongsTo tells whether the key is one of the claim with that UID.
func (k Key) BelongsTo(claimUID string) bool {
	if !strings.HasPrefix(string(k), claimUID) { // most keys differ here already
		return false
	}
	uid, ok := k.ClaimUID()
	return ok && uid == claimUID
}

// Limits is the amount that a share holds.
type Limits struct {
	// Cores is compute of the online ledger, OfflineCores of the offline one.
	Cores        card.Percent `json:"cores"`
	OfflineCores card.Percent `json:"offlineCores"`
	Memory       card.MiB     `json:"memoryMiB"`
}

// Share is one part of one card, decoded from a claim's allocation.
type Share struct {
	ID
	Card   card.UUID `json:"card"`
	Limits Limits    `json:"limits"`
	Policy Policy    `json:"policy"`
	Class  Class     `json:"class"`
	// BurstCeiling is the most compute that a guaranteed-burst or native-burst
	// share may use while the card idles; 100 where nothing was said.
	BurstCeiling card.Percent `json:"burstCeiling"`
	// Whole is set when the share is an entire card.
	Whole bool `json:"whole"`
}
