// SPDX-License-Identifier: Apache-2.0

package arbiter

import "errors"

var (
	// ErrNotServing: the arbiter has not looked at the shares yet, or has ended.
	ErrNotServing = errors.New("not serving shares")

	// ErrStuck: the arbiter does not follow what happens to shares any more.
	ErrStuck = errors.New("the arbiter is stuck")

	errPeerGone   = errors.New("the process has ended")
	errPeerHidden = errors.New("the process cannot be seen: tranche-arbiter needs the host's PID namespace")
	errNotOurs    = errors.New("not a ledger of this arbiter")
)
