// SPDX-License-Identifier: Apache-2.0

package elfdeps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxDepth of include lines; more is a loop.
const maxDepth = 8

// configured reads the loader's directories from its configuration (ldconfig(8)),
// which a machine need not have.
func configured(file string, depth int) ([]string, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("read %s: more than %d nested includes", file, maxDepth)
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the loader's configuration: %w", err)
	}
	var directories []string
	for line := range strings.Lines(string(content)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "include":
			more, err := included(filepath.Dir(file), fields[1:], depth)
			if err != nil {
				return nil, err
			}
			directories = append(directories, more...)
		default:
			directories = append(directories, fields[0])
		}
	}
	return directories, nil
}

func included(base string, patterns []string, depth int) ([]string, error) {
	var directories []string
	for _, pattern := range patterns {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(base, pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("expand include %s: %w", pattern, err)
		}
		for _, file := range files {
			more, err := configured(file, depth+1)
			if err != nil {
				return nil, err
			}
			directories = append(directories, more...)
		}
	}
	return directories, nil
}
