// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"strconv"
)

// bound is the side on which a target is met.
type bound uint8

const (
	none bound = iota
	atMost
	atLeast
)

// Target is what a figure should reach, in the row's unit. The zero value is a
// figure that is reported without one.
type Target struct {
	bound bound
	limit float64
}

// AtMost is met by limit and everything below.
func AtMost(limit float64) Target { return Target{bound: atMost, limit: limit} }

// AtLeast is met by limit and everything above.
func AtLeast(limit float64) Target { return Target{bound: atLeast, limit: limit} }

// Set tells whether there is a target at all.
func (t Target) Set() bool { return t.bound != none }

// Met tells whether a value reaches the target. Without a target it does not.
func (t Target) Met(value float64) bool {
	switch t.bound {
	case atMost:
		return value <= t.limit
	case atLeast:
		return value >= t.limit
	default:
		return false
	}
}

// String is "at most 20", "at least 97", or empty.
func (t Target) String() string {
	switch t.bound {
	case atMost:
		return "at most " + number(t.limit)
	case atLeast:
		return "at least " + number(t.limit)
	default:
		return ""
	}
}

// noise is what sums of fractions leave that should be nothing.
const noise = 1e-9

// number prints four significant digits where there is a fraction, and whole
// numbers in full: a count must not be rounded, a time need not be exact.
func number(v float64) string {
	if v >= 1000 || v <= -1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	if math.Abs(v) < noise {
		return "0"
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		rounded = v
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
