// SPDX-License-Identifier: Apache-2.0

package prepare

import (
	"errors"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/share"
)

// transient wraps an error that may be gone in a moment.
type transient struct{ error }

func (t transient) Unwrap() error   { return t.error }
func (t transient) Transient() bool { return true }

// IsTransient tells whether trying again soon may help: files that cannot be
// written or a card that is away for a moment, in contrast to a claim that asks
// for what cannot be.
func IsTransient(err error) bool {
	var t interface{ Transient() bool }
	return errors.As(err, &t) && t.Transient()
}

func classify(err error) error {
	var overCommit *share.OverCommitError
	var refused *claims.Error
	switch {
	case errors.As(err, &overCommit), errors.Is(err, checkpoint.ErrNewer):
		return err
	case errors.As(err, &refused) && !errors.Is(err, claims.ErrNoSuchCard):
		return err
	default:
		return transient{err}
	}
}
