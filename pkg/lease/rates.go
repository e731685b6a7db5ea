// SPDX-License-Identifier: Apache-2.0

package lease

// leftover is the least part of the card that is left to those without a guarantee,
// all of them together, while they want it: so that nobody waits for ever.
const leftover = 0.01

// rates gives each tenant of a level that wants the card its part of it, and tells how many
// they are, the sum, and the least.
func (b *board) rates(lower bool) (n int, sum, least float64) {
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
	b.fill(lower, 1-floors*scale)
	least = 1
	for _, t := range b.tenants {
		if t.lower == lower && t.counts() {
			sum += t.rate
			least = min(least, t.rate)
		}
	}
	return n, sum, least
}

// fill those who may have more than their floor with what is left, by weight, each to
// its ceiling.
func (b *board) fill(lower bool, left float64) {
	const little = 1e-9
	takes := func(t *tenant) bool {
		return t.lower == lower && t.counts() && t.weight > 0 && t.ceiling-t.rate > little
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
