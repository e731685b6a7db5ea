// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"testing"
)

func TestMemoryHandedOverStaysChargedToOneOfTheTwo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := start(t, p.box, nil, "handover", "released")
	fill(t, p, client)
	p.gone(t)
	p.neverAbove(t)
}

func TestMemoryFreedByTwoThreadsAtOnceIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 512)
	client := start(t, p.box, nil, "handover", "freed-twice")
	fill(t, p, client)
	p.gone(t)
	p.neverAbove(t)
}
