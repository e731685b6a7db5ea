// SPDX-License-Identifier: Apache-2.0

// Package nvml tests what a container sees of its cards through NVML, with the
// sharing runtime in front of the simulated driver.
package nvml
