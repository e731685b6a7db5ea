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
// written, a card that is away for a moment, or a card that is still held. The
// last is what a force-deleted pod leaves: the API server gives its share to
// another claim before its containers have ended here. A claim that asks for
// what cannot be is not transient.
func IsTransient(err error) bool {
	var t interface{ Transient() bool }
	return errors.As(err, &t) && t.Transient()
}

func classify(err error) error {
	var over *share.OverCommitError
	if errors.Is(err, checkpoint.ErrNewer) || errors.Is(err, claims.ErrImpossible) || errors.As(err, &over) && over.ByItself() {
		return err
	}
	return transient{err}
}
