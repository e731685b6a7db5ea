// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// narrator tells what happens and how long it took.
type narrator struct {
	to    io.Writer
	now   func() time.Time
	begin time.Time
	step  time.Time
	steps int
}

func newNarrator(to io.Writer, now func() time.Time) *narrator {
	return &narrator{to: to, now: now, begin: now()}
}

// head begins a step; command, if any, is what a reader would type for it.
func (n *narrator) head(title, command string) {
	n.steps++
	n.step = n.now()
	n.line("\n%d. %s", n.steps, title)
	if command != "" {
		n.line("   $ %s", command)
	}
}

// done ends a step, or a part of one.
func (n *narrator) done(format string, args ...any) {
	n.line("   %s (%s)", fmt.Sprintf(format, args...), seconds(n.now().Sub(n.step)))
	n.step = n.now()
}

// block prints what is more than a line, set in.
func (n *narrator) block(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		n.line("   %s", strings.TrimRight(line, "\n"))
	}
}

// text prints one paragraph, set in and broken into lines.
func (n *narrator) text(paragraph string) {
	const width = 100
	var line string
	for word := range strings.FieldsSeq(paragraph) {
		if line != "" && len(line)+1+len(word) > width {
			n.line("   %s", line)
			line = ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	n.line("   %s", line)
}

// line prints one line as it is. Where standard output is gone there is nobody
// left to tell.
func (n *narrator) line(format string, args ...any) {
	_, _ = fmt.Fprintln(n.to, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// total is how long everything took.
func (n *narrator) total() string { return seconds(n.now().Sub(n.begin)) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
