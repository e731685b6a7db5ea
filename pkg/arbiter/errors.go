// SPDX-License-Identifier: Apache-2.0

package arbiter

import "errors"

var (
	// ErrStandby: another arbiter serves this node; this one waits for its end.
	ErrStandby = errors.New("another arbiter serves this node")

	// ErrNotServing: the arbiter has not looked at the shares yet, or has ended.
	ErrNotServing = errors.New("not serving shares")

	errPeerGone   = errors.New("the process has ended")
	errPeerHidden = errors.New("the process cannot be seen: tranche-arbiter needs the host's PID namespace")
	errNotOurs    = errors.New("not a ledger of this arbiter")
)
