// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// whenFull begins the line that tests/clients/fill prints once it was refused.
const whenFull = "full total="

var fullLine = regexp.MustCompile(`(?m)^full total=(\d+) free=\d+ blocks=\d+ bytes=(\d+)$`)

// howFar reads from what the program fill said how large a card it was shown, and
// how much of it it got, in MiB.
func howFar(said string) (total, taken uint64, err error) {
	match := fullLine.FindStringSubmatch(said)
	if match == nil {
		return 0, 0, fmt.Errorf("find the line %q: %w", whenFull, errNotSaid)
	}
	total, errTotal := strconv.ParseUint(match[1], 10, 64)
	taken, errTaken := strconv.ParseUint(match[2], 10, 64)
	return total >> 20, taken >> 20, errors.Join(errTotal, errTaken)
}

var errNotSaid = errors.New("it is not there")
