// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Tail returns the last lines of a file, or why it has none, for a message to people.
func Tail(file string, lines int) string {
	text, err := end(file, 64<<10)
	if err != nil {
		return fmt.Sprintf("  (%v)", err)
	}
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	return "  " + strings.Join(all, "\n  ")
}

// end reads up to limit bytes from the end of a file: a component's log may be large.
func end(file string, limit int64) (text string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("open log: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", fmt.Errorf("measure log: %w", err)
	}
	content, err := io.ReadAll(io.NewSectionReader(f, max(0, size-limit), limit))
	if err != nil {
		return "", fmt.Errorf("read log: %w", err)
	}
	return string(content), nil
}
