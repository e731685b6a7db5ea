// SPDX-License-Identifier: Apache-2.0

package lease

// leftover is the part of the card that goes to those without a guarantee before anything
// else, to all of them together, while they want it: so that nobody waits for ever.
const leftover = 0.005

// little is a part of the card that is nothing but rounding.
const little = 1e-9

// rates gives each tenant of a level that wants the card its part of it, and tells how many
// they are, and the sum.
func (b *board) rates(lower bool) (n int, sum float64) {
	var floors float64
	room := 1.0
	for _, t := range b.tenants {
		if t.lower != lower || !t.counts() {
			continue
		}
		n++
		floors += t.floor
		if t.floor == 0 {
			room = 1 - leftover
		}
	}
	scale := 1.0
	if floors > room {
		scale = room / floors
	}
	for _, t := range b.tenants {
		if t.lower == lower && t.counts() {
			t.rate = t.floor * scale
		}
	}
	left := 1 - floors*scale
	if room < 1 {
		b.pour(lower, true, leftover)
		left -= leftover
	}
	b.pour(lower, false, left)
	for _, t := range b.tenants {
		if t.lower == lower && t.counts() {
			sum += t.rate
		}
	}
	return n, sum
}

// pour what is left over those who may have more than their floor, by weight, each to
// its ceiling.
func (b *board) pour(lower, floorless bool, left float64) {
	takes := func(t *tenant) bool {
		return t.lower == lower && t.counts() && t.weight > 0 && t.ceiling-t.rate > little && !(floorless && t.floor > 0)
	}
	for left > little {
		var weights float64
		for _, t := range b.tenants {
			if takes(t) {
				weights += t.weight
			}
		}
		if weights == 0 {
			return
		}
		// The water rises until the first one is full.
		rise := left / weights
		for _, t := range b.tenants {
			if takes(t) {
				rise = min(rise, (t.ceiling-t.rate)/t.weight)
			}
		}
		for _, t := range b.tenants {
			if takes(t) {
				t.rate += rise * t.weight
			}
		}
		left -= rise * weights
	}
}
