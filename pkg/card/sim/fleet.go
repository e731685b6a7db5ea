// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	// APIVersion and Kind may head a fleet file. What is there must be this.
	APIVersion = "tranche.dev/v1alpha1"
	// Kind of a fleet file.
	Kind = "Fleet"
)

// Fleet is the content of a fleet file. Three lines are enough for eight cards:
//
//	cards:
//	- model: A100-80GB
//	  count: 8
type Fleet struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// ListError, if set, makes listing the cards fail with this message.
	ListError string `json:"listError,omitempty"`
	// Defaults hold for every card that does not say otherwise.
	Defaults Facts `json:"defaults,omitzero"`
	// Cards in the order of their indices. Required, may be empty.
	Cards []Entry `json:"cards"`
}

// Facts are what several cards can have in common. What is left out comes from
// the fleet's defaults, then from the model, then from what is said here.
type Facts struct {
	// Model is one of Models. It tells productName, memory, architecture and
	// computeCapability.
	Model       string `json:"model,omitempty"`
	ProductName string `json:"productName,omitempty"`
	// Memory is the card's total as a quantity ("24Gi"). "0" is unknown.
	Memory Amount `json:"memory,omitempty"`
	// ReservedMemory is what the driver keeps of it. Default 0.
	ReservedMemory    Amount `json:"reservedMemory,omitempty"`
	Architecture      string `json:"architecture,omitempty"`
	ComputeCapability string `json:"computeCapability,omitempty"`
	// DriverVersion and CUDAVersion default to a recent pair.
	DriverVersion string `json:"driverVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion,omitempty"`
	// Vendor is nvidia (the default), amd or intel. Cards of others than
	// NVIDIA are never shared.
	Vendor string `json:"vendor,omitempty"`
	// PCIeRoot defaults to one for every two cards.
	PCIeRoot string `json:"pcieRoot,omitempty"`
	// NUMANode defaults to 0 for the first four cards, 1 for the next four,
	// and so on in turn; -1 is unknown.
	NUMANode *int `json:"numaNode,omitempty"`
	// WholeOnly cards are never shared, like those split by MIG.
	WholeOnly *bool `json:"wholeOnly,omitempty"`
}

// Entry is one card, or count cards that are alike.
type Entry struct {
	Facts `json:",inline"`

	// Count of cards, default 1. An entry for several cards cannot say what
	// only one card can have: UUID, index, minor and PCI address.
	Count *int `json:"count,omitempty"`
	// UUID defaults to one that depends on the node's name and the index only.
	UUID string `json:"uuid,omitempty"`
	// Index defaults to the position in the list, counting absent cards.
	Index *int `json:"index,omitempty"`
	// Minor defaults to the index.
	Minor *int `json:"minor,omitempty"`
	// PCIBusID is domain:bus:device.function; the default depends on the index.
	PCIBusID string `json:"pciBusID,omitempty"`
	// Absent cards keep their place in the list but are not there.
	Absent bool `json:"absent,omitempty"`
	// DeviceNodeMissing makes Source.DeviceNode fail for the card.
	DeviceNodeMissing bool `json:"deviceNodeMissing,omitempty"`
	// Faults that stand.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is one thing that is wrong with a card.
type Fault struct {
	// Kind is a short CamelCase word. Required.
	Kind    string `json:"kind"`
	Message string `json:"message,omitempty"`
	// Evict asks that pods on the card are stopped.
	Evict bool `json:"evict,omitempty"`
}

// Amount is a Kubernetes quantity as written, so that an error can name its
// field. A bare number is one of bytes.
type Amount string

// UnmarshalJSON takes a text or a number.
func (a *Amount) UnmarshalJSON(raw []byte) error {
	switch {
	case bytes.HasPrefix(raw, []byte(`"`)):
		var s string
		if err := json.UnmarshalCaseSensitivePreserveInts(raw, &s); err != nil {
			return err
		}
		*a = Amount(s)
	case bytes.Equal(raw, []byte("null")):
	default:
		// Whatever else it is, parsing it as a quantity will tell.
		*a = Amount(raw)
	}
	return nil
}

// Decode reads a fleet file, YAML or JSON, of one document. Fields that are
// unknown, given twice or written in another case are errors. The result is
// validated; errors name the field.
func Decode(raw []byte) (*Fleet, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		// Most likely it is being written. Taken as no cards, it would
		// withdraw all of them.
		return nil, errors.New(`decode fleet: file is empty: write "cards: []" for no cards`)
	}
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, fmt.Errorf("decode fleet: %w", err)
	}
	if err := onlyOneDocument(raw); err != nil {
		return nil, fmt.Errorf("decode fleet: %w", err)
	}
	fleet := &Fleet{}
	strict, err := json.UnmarshalStrict(asJSON, fleet)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("decode fleet: %w", err)
	}
	if err := fleet.validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("decode fleet: %w", err)
	}
	return fleet, nil
}

// onlyOneDocument refuses what the YAML decoder would pass over in silence.
func onlyOneDocument(raw []byte) error {
	content := false
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimRight(line, " \t\r\n")
		separator := line == "---" || strings.HasPrefix(line, "--- ")
		if separator && content {
			return errors.New("one document is expected, found several")
		}
		if !separator && line != "" && !strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") {
			content = true
		}
	}
	return nil
}

func (f *Fleet) validate() field.ErrorList {
	var errs field.ErrorList
	if f.APIVersion != "" && f.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), f.APIVersion, []string{APIVersion}))
	}
	if f.Kind != "" && f.Kind != Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), f.Kind, []string{Kind}))
	}
	if f.Cards == nil {
		errs = append(errs, field.Required(field.NewPath("cards"), "write [] for no cards"))
	}
	errs = append(errs, f.Defaults.validate(field.NewPath("defaults"))...)
	total := 0
	for i, e := range f.Cards {
		path := field.NewPath("cards").Index(i)
		errs = append(errs, e.validate(path, f.Defaults)...)
		total += e.count()
	}
	if total > maxCards {
		errs = append(errs, field.TooMany(field.NewPath("cards"), total, maxCards))
	}
	if len(errs) > 0 {
		return errs
	}
	return f.validateUnique()
}
