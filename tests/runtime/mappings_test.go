// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// mapping is a line of a process's maps.
type mapping struct {
	from, to    uint64
	permissions string
	inode       uint64
	path        string
}

func mappingsOf(pid int) ([]mapping, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	var all []mapping
	for line := range strings.Lines(string(text)) {
		var m mapping
		var offset, device string
		if _, err := fmt.Sscanf(line, "%x-%x %s %s %s %d", &m.from, &m.to, &m.permissions, &offset, &device, &m.inode); err != nil {
			return nil, fmt.Errorf("read mapping %q: %w", line, err)
		}
		if fields := strings.Fields(line); len(fields) > 5 {
			m.path = fields[5]
		}
		all = append(all, m)
	}
	return all, nil
}

// peek reads what a process has at an address.
func peek(pid int, at uint64, into []byte) error {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return err
	}
	_, err = memory.ReadAt(into, int64(at))
	return errors.Join(err, memory.Close())
}
