// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/share"
)

// A class says how its shares are treated, a claim changes one field of it, and
// the node fills in what both left open.
func ExampleMerge() {
	class, err := v1alpha1.Decode([]byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig","policy":"guaranteed-burst-share"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	claim, err := v1alpha1.Decode([]byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig","burst":{"ceiling":50}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	config := v1alpha1.Merge(class, claim)
	v1alpha1.SetDefaults(config, share.Fixed)
	fmt.Println(*config.Policy, *config.Class, config.BurstCeiling())
	for _, err := range config.ValidateMerged(share.Limits{Cores: 60, Memory: 4096}, nil) {
		fmt.Println(err)
	}
	// Output:
	// guaranteed-burst-share none 50%
	// burst.ceiling: Invalid value: 50: must not be below the guaranteed cores of 60
}

// A field that is misspelt is an error, never a setting that silently does not hold.
func ExampleDecode() {
	_, err := v1alpha1.Decode([]byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig","burst":{"cieling":50}}`))
	fmt.Println(err)
	// Output:
	// decode ShareConfig: strict decoding error: unknown field "burst.cieling"
}
