// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Nop measures nothing. The zero value is ready for use.
type Nop struct{}

// PrepareDone does nothing.
func (Nop) PrepareDone(time.Duration, error) {}

// UnprepareDone does nothing.
func (Nop) UnprepareDone(time.Duration, error) {}

// PublishDone does nothing.
func (Nop) PublishDone(error) {}

// CardsListed does nothing.
func (Nop) CardsListed([]card.Card, error) {}

// CardsPublished does nothing.
func (Nop) CardsPublished(int) {}

// Healed does nothing.
func (Nop) Healed(string) {}

// Quarantined does nothing.
func (Nop) Quarantined() {}
