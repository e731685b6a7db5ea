// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	// maxCards is far above any machine; it keeps a typing error cheap.
	maxCards = 1024
	// maxText is the longest text that can be published as an attribute.
	maxText = 64
)

var (
	pciBusID = regexp.MustCompile(`^(?:[0-9a-f]{4})?[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	pcieRoot = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	uuid     = regexp.MustCompile(`^[-_.:/A-Za-z0-9]+$`)
)

func vendors() []string { return []string{card.VendorNVIDIA, card.VendorAMD, card.VendorIntel} }

func (f Facts) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, known := modelOf(f.Model); f.Model != "" && !known {
		errs = append(errs, field.NotSupported(path.Child("model"), f.Model, Models()))
	}
	if f.Vendor != "" && !slices.Contains(vendors(), f.Vendor) {
		errs = append(errs, field.NotSupported(path.Child("vendor"), f.Vendor, vendors()))
	}
	for name, amount := range map[string]Amount{"memory": f.Memory, "reservedMemory": f.ReservedMemory} {
		if _, err := amount.bytes(); err != nil {
			errs = append(errs, field.Invalid(path.Child(name), string(amount), err.Error()))
		}
	}
	for name, text := range map[string]string{
		"productName": f.ProductName, "architecture": f.Architecture, "computeCapability": f.ComputeCapability,
		"driverVersion": f.DriverVersion, "cudaVersion": f.CUDAVersion,
	} {
		if len(text) > maxText {
			errs = append(errs, field.TooLong(path.Child(name), text, maxText))
		}
	}
	if f.PCIeRoot != "" && !pcieRoot.MatchString(f.PCIeRoot) {
		errs = append(errs, field.Invalid(path.Child("pcieRoot"), f.PCIeRoot, `want pci<domain>:<bus> in hexadecimal, for example "pci0000:15"`))
	}
	if f.NUMANode != nil && *f.NUMANode < card.Unknown {
		errs = append(errs, field.Invalid(path.Child("numaNode"), *f.NUMANode, "want a node's number, or -1 for unknown"))
	}
	return sorted(errs)
}

func (e Entry) validate(path *field.Path, defaults Facts) field.ErrorList {
	errs := e.Facts.validate(path)
	if e.Count != nil && *e.Count < 1 {
		errs = append(errs, field.Invalid(path.Child("count"), *e.Count, "want at least 1; absent: true takes a card away"))
	}
	if e.count() > 1 {
		for _, own := range []struct {
			name string
			set  bool
		}{{"uuid", e.UUID != ""}, {"index", e.Index != nil}, {"minor", e.Minor != nil}, {"pciBusID", e.PCIBusID != ""}} {
			if own.set {
				errs = append(errs, field.Forbidden(path.Child(own.name), fmt.Sprintf("%d cards cannot have the same one: write an entry for each", e.count())))
			}
		}
	}
	if e.UUID != "" && (len(e.UUID) > maxText || !uuid.MatchString(e.UUID)) {
		errs = append(errs, field.Invalid(path.Child("uuid"), e.UUID, fmt.Sprintf("want at most %d letters, digits and any of - _ . : /", maxText)))
	}
	if e.Index != nil && (*e.Index < 0 || *e.Index >= maxCards) {
		errs = append(errs, field.Invalid(path.Child("index"), *e.Index, fmt.Sprintf("want 0 to %d", maxCards-1)))
	}
	if e.Minor != nil && *e.Minor < card.Unknown {
		errs = append(errs, field.Invalid(path.Child("minor"), *e.Minor, "want a device node's number, or -1 for unknown"))
	}
	if e.PCIBusID != "" && !pciBusID.MatchString(e.PCIBusID) {
		errs = append(errs, field.Invalid(path.Child("pciBusID"), e.PCIBusID, `want domain:bus:device.function in hexadecimal, for example "0000:1b:00.0"`))
	}
	for i, f := range e.Faults {
		if f.Kind == "" {
			errs = append(errs, field.Required(path.Child("faults").Index(i).Child("kind"), `say what is wrong in one word, for example "XidError"`))
		}
	}
	if len(errs) == 0 {
		errs = e.over(defaults).validateMemory(path)
	}
	return errs
}

// validateMemory checks what an entry and the defaults say together.
func (f Facts) validateMemory(path *field.Path) field.ErrorList {
	if f.Memory == "" && f.Model == "" {
		return field.ErrorList{field.Required(path.Child("memory"), `name a model or an amount; "0" is a card that does not tell`)}
	}
	total, reserved := f.totalAndReserved()
	if total > 0 && reserved > total {
		return field.ErrorList{field.Invalid(path.Child("reservedMemory"), string(f.ReservedMemory), "is more than the card has")}
	}
	return nil
}

// validateUnique checks the fleet that the entries give together.
func (f *Fleet) validateUnique() field.ErrorList {
	var errs field.ErrorList
	uuids, indices, addresses := map[card.UUID]bool{}, map[int]bool{}, map[string]bool{}
	for _, p := range f.expand("") {
		path := field.NewPath("cards").Index(p.entry)
		if uuids[p.card.UUID] {
			errs = append(errs, field.Duplicate(path.Child("uuid"), string(p.card.UUID)))
		}
		if indices[p.card.Index] {
			errs = append(errs, field.Duplicate(path.Child("index"), p.card.Index))
		}
		if addresses[p.card.PCIBusID] {
			errs = append(errs, field.Duplicate(path.Child("pciBusID"), p.card.PCIBusID))
		}
		uuids[p.card.UUID], indices[p.card.Index], addresses[p.card.PCIBusID] = true, true, true
	}
	return errs
}

// bytes is the amount, 0 where nothing was written.
func (a Amount) bytes() (int64, error) {
	if a == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(string(a))
	if err != nil {
		return 0, fmt.Errorf("want a quantity, for example 24Gi: %w", err)
	}
	if q.Sign() < 0 || q.CmpInt64(1<<50) > 0 {
		return 0, fmt.Errorf("want 0 to 1Pi")
	}
	return q.Value(), nil
}

// sorted makes the errors of a map's walk come in the same order each time.
func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return slices.Compare([]byte(a.Field), []byte(b.Field))
	})
	return errs
}
