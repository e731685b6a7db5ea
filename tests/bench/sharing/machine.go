// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// ticks of the machine's processors since it was started.
type ticks struct{ idle, all uint64 }

// idleSince is the percent of the time since earlier that processors were idle.
func (t ticks) idleSince(earlier ticks) float64 {
	if t.all <= earlier.all {
		return 0
	}
	return 100 * float64(t.idle-earlier.idle) / float64(t.all-earlier.all)
}

func processors() (ticks, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, err
	}
	return parseTicks(string(content))
}

// parseTicks reads the first line of /proc/stat: user, nice, system, idle, iowait, irq,
// softirq and steal; guests' times are in the first two.
func parseTicks(stat string) (ticks, error) {
	line, _, _ := strings.Cut(stat, "\n")
	var n [8]uint64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); err != nil {
		return ticks{}, fmt.Errorf("read %q: %w", line, err)
	}
	t := ticks{idle: n[3] + n[4]}
	for _, v := range n {
		t.all += v
	}
	return t, nil
}
