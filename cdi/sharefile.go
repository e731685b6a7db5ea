// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	kjson "sigs.k8s.io/json"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// ContractVersion is the version of what CONTRACT.md says. A field that is
// added keeps it; a field that means something else raises it.
const ContractVersion = 1

// maxShareFile is the most bytes that a share.json may have. The longest names
// that Kubernetes allows need a few KiB.
const maxShareFile = 64 << 10

// ShareDocument is the content of share.json, as CONTRACT.md sets it out. It is
// a type of its own, not share.Share, because containers of older and newer
// releases read the file: a change of share.Share must not change it silently.
type ShareDocument struct {
	Version int         `json:"version"`
	Key     share.Key   `json:"key"`
	Claim   share.Claim `json:"claim"`
	Request string      `json:"request"`
	Pool    string      `json:"pool"`
	Device  string      `json:"device"`
	ShareID string      `json:"shareID,omitempty"`

	Card   ShareCard    `json:"card"`
	Limits share.Limits `json:"limits"`
	Policy share.Policy `json:"policy"`
	Class  share.Class  `json:"class"`

	BurstCeiling card.Percent `json:"burstCeiling"`
	Whole        bool         `json:"whole"`
}

// ShareCard is what share.json says of the card. It holds only facts that stay
// as they are over a reboot: the file is compared with what it should be.
type ShareCard struct {
	UUID        card.UUID `json:"uuid"`
	Vendor      string    `json:"vendor"`
	ProductName string    `json:"productName"`
	PCIBusID    string    `json:"pciBusID"`
	Memory      card.MiB  `json:"memoryMiB"`
	Simulated   bool      `json:"simulated"`
}

// Share is the share that the document describes.
func (d ShareDocument) Share() share.Share {
	return share.Share{
		ID: share.ID{
			Claim: d.Claim, Request: d.Request, Pool: d.Pool, Device: d.Device, ShareID: d.ShareID,
		},
		Card: d.Card.UUID, Limits: d.Limits, Policy: d.Policy, Class: d.Class,
		BurstCeiling: d.BurstCeiling, Whole: d.Whole,
	}
}

// ShareFile is the share.json of a share on its card. The same arguments give
// the same bytes. It is an error when ParseShareFile would not read back what
// was put in.
func ShareFile(s share.Share, c card.Card) ([]byte, error) {
	want := ShareDocument{
		Version: ContractVersion,
		Key:     s.Key(),
		Claim:   s.Claim, Request: s.Request, Pool: s.Pool, Device: s.Device, ShareID: s.ShareID,
		Card: ShareCard{
			UUID: c.UUID, Vendor: c.Vendor, ProductName: c.ProductName,
			PCIBusID: c.PCIBusID, Memory: c.Memory, Simulated: c.Simulated,
		},
		Limits: s.Limits, Policy: s.Policy, Class: s.Class,
		BurstCeiling: s.BurstCeiling, Whole: s.Whole,
	}
	if s.Card != c.UUID {
		return nil, fmt.Errorf("make share.json of claim %s: share is on card %s, not on %s", s.Claim, s.Card, c.UUID)
	}
	data, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make share.json of claim %s: %w", s.Claim, err)
	}
	data = append(data, '\n')
	got, err := ParseShareFile(data)
	if err != nil {
		return nil, fmt.Errorf("make share.json of claim %s: %w", s.Claim, err)
	}
	if got != want {
		return nil, fmt.Errorf("make share.json of claim %s: a name is not valid UTF-8", s.Claim)
	}
	return data, nil
}

// ParseShareFile reads a share.json. Fields that it does not know are passed
// over, for they were added by a newer release without a change of meaning;
// everything else that is wrong is an error: another type, another spelling, a
// field given twice, a value out of range. A higher version is ErrVersion.
func ParseShareFile(data []byte) (ShareDocument, error) {
	doc, err := parseShareFile(data)
	if err != nil {
		return ShareDocument{}, fmt.Errorf("read share.json: %w", err)
	}
	return doc, nil
}

func parseShareFile(data []byte) (ShareDocument, error) {
	if len(data) > maxShareFile {
		return ShareDocument{}, fmt.Errorf("%d bytes are more than %d", len(data), maxShareFile)
	}
	// The version is read first: of a newer file not even the types are known.
	var head struct {
		Version int `json:"version"`
	}
	if err := decode(data, &head); err != nil {
		return ShareDocument{}, err
	}
	switch {
	case head.Version > ContractVersion:
		return ShareDocument{}, fmt.Errorf("%w: version %d, known up to %d", ErrVersion, head.Version, ContractVersion)
	case head.Version < 1:
		return ShareDocument{}, fmt.Errorf("version %d is not a positive number", head.Version)
	}
	var doc ShareDocument
	if err := decode(data, &doc); err != nil {
		return ShareDocument{}, err
	}
	return doc, doc.check()
}

func decode(data []byte, into any) error {
	twice, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	return errors.Join(append(twice, err)...)
}

func (d ShareDocument) check() error {
	if err := checkKey(d.Key); err != nil {
		return err
	}
	percent := func(field string, p card.Percent) error {
		if p < 0 || p > card.WholeCompute {
			return fmt.Errorf("%s is %d, not 0 to %d percent", field, p, card.WholeCompute)
		}
		return nil
	}
	mib := func(field string, m card.MiB) error {
		if m < 0 {
			return fmt.Errorf("%s is %d MiB, below zero", field, m)
		}
		return nil
	}
	if !d.Key.BelongsTo(d.Claim.UID) {
		return fmt.Errorf("key %s is not one of claim %q", d.Key, d.Claim.UID)
	}
	if d.Card.UUID == "" {
		return errors.New("card.uuid is missing")
	}
	if !slices.Contains(share.Policies(), d.Policy) {
		return fmt.Errorf("policy %q is not one of %q", d.Policy, share.Policies())
	}
	if !slices.Contains(share.Classes(), d.Class) {
		return fmt.Errorf("class %q is not one of %q", d.Class, share.Classes())
	}
	return errors.Join(
		percent("limits.cores", d.Limits.Cores),
		percent("limits.offlineCores", d.Limits.OfflineCores),
		percent("burstCeiling", d.BurstCeiling),
		mib("limits.memoryMiB", d.Limits.Memory),
		mib("card.memoryMiB", d.Card.Memory),
	)
}
