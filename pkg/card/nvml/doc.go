// SPDX-License-Identifier: Apache-2.0

// Package nvml is the source of NVIDIA cards: NVML, the driver's management
// library, tells what they are and what is wrong with them, and sysfs tells
// where they are plugged in. No other package of this module imports go-nvml.
//
// A Source owns its session with NVML and the memory of past XID errors. It may
// be used by any number of goroutines; Close ends it. NVML is started when
// cards are first asked for and started again when there were none, so that
// cards, and the driver itself, may come later.
package nvml
