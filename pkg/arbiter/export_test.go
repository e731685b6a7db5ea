// SPDX-License-Identifier: Apache-2.0

package arbiter

// DenyRecovery makes that an arbiter has no right to look into processes for
// their ledger.
func DenyRecovery(c *Config) {
	c.findLedger = func(int, fileID) (int, error) { return -1, errNotOurs }
}

// OldKernel makes that an arbiter waits for one futex at a time.
func OldKernel(c *Config) { c.oldKernel = true }
