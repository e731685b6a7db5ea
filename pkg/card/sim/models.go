// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/tranche-dra/tranche/pkg/card"

// model is what is known of a card that can be bought. Memory is the total that
// the driver prints.
type model struct {
	name, productName, architecture, computeCapability string

	memory card.MiB
}

// models in the order in which messages list them.
func models() []model {
	return []model{
		{"V100-16GB", "Tesla V100-SXM2-16GB", "Volta", "7.0", 16384},
		{"V100-32GB", "Tesla V100-SXM2-32GB", "Volta", "7.0", 32768},
		{"T4", "Tesla T4", "Turing", "7.5", 15360},
		{"A10", "NVIDIA A10", "Ampere", "8.6", 23028},
		{"A30", "NVIDIA A30", "Ampere", "8.0", 24576},
		{"A100-40GB", "NVIDIA A100-SXM4-40GB", "Ampere", "8.0", 40960},
		{"A100-80GB", "NVIDIA A100-SXM4-80GB", "Ampere", "8.0", 81920},
		{"RTX3090", "NVIDIA GeForce RTX 3090", "Ampere", "8.6", 24576},
		{"L4", "NVIDIA L4", "Ada", "8.9", 23034},
		{"L40S", "NVIDIA L40S", "Ada", "8.9", 46068},
		{"RTX4090", "NVIDIA GeForce RTX 4090", "Ada", "8.9", 24564},
		{"H100", "NVIDIA H100 80GB HBM3", "Hopper", "9.0", 81559},
		{"H200", "NVIDIA H200", "Hopper", "9.0", 143771},
		{"B200", "NVIDIA B200", "Blackwell", "10.0", 183359},
	}
}

// Models are the names that a fleet's field "model" takes.
func Models() []string {
	var names []string
	for _, m := range models() {
		names = append(names, m.name)
	}
	return names
}

func modelOf(name string) (model, bool) {
	for _, m := range models() {
		if m.name == name {
			return m, true
		}
	}
	return model{}, false
}
