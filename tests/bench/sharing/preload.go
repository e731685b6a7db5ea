// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dra/tranche/tests/sandbox"
)

var errNoLibrary = errors.New("not a shared object that programs of this machine can load")

// check refuses a runtime whose files cannot be what they are said to be, before anything is
// measured.
func (c contender) check() error {
	for _, f := range c.files {
		_, source, _ := strings.Cut(f, "=")
		if _, err := os.Stat(source); err != nil {
			return fmt.Errorf("-file: %w", err)
		}
	}
	for flag, file := range map[string]string{"-preload": c.outside(c.preload), "-library": c.library} {
		if file == "" {
			continue
		}
		if err := loadable(file); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

// outside is the machine's file that tenants have at a path.
func (c contender) outside(path string) string {
	for _, f := range c.files {
		if target, source, _ := strings.Cut(f, "="); target == path {
			return source
		}
	}
	return path
}

// loadable is an error where the file is no shared object for programs such as this one.
func loadable(file string) error {
	own, err := elf.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer own.Close() //nolint:errcheck // only read
	object, err := elf.Open(file)
	if _, unread := errors.AsType[*os.PathError](err); unread {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", file, errNoLibrary, err)
	}
	defer object.Close() //nolint:errcheck // only read
	if object.Type != elf.ET_DYN || object.Machine != own.Machine || object.Class != own.Class {
		return fmt.Errorf("%s: %w: it is %s for %s", file, errNoLibrary, object.Type, object.Machine)
	}
	return nil
}

// inBox is the path by which the kernel knows the preload in a box, empty where there is none.
func (c contender) inBox(box *sandbox.Box) (path string, err error) {
	if c.preload == "" {
		return "", nil
	}
	err = box.Do(func() error {
		path, err = filepath.EvalSymlinks(c.preload)
		return err
	})
	if err != nil {
		err = fmt.Errorf("find -preload in the tenants' containers: %w", err)
	}
	return path, err
}

// loaded says why a process does not have the preload. The loader goes on without one that it cannot
// load, and what is measured then is the card's own turns.
func loaded(pid int, preload string) error {
	if preload == "" {
		return nil
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.TrimSuffix(line[at:], "\n") == preload {
			return nil
		}
	}
	return unmeasured(preload + " is not in the tenants' processes: the loader cannot use it, or the tenants have no such file")
}

// preloaded is an error where a process that has a card, or the first one of a tenant, is without
// the preload.
func (p *play) preloaded(c contender) error {
	paths := make([]string, len(p.actors))
	for i, a := range p.actors {
		var err error
		if paths[i], err = c.inBox(a.box); err != nil {
			return err
		}
		if err := loaded(a.program.PID, paths[i]); err != nil {
			return fmt.Errorf("%w\n%s", err, a.program.Complaints())
		}
	}
	for _, card := range p.cards {
		truth, err := card.Truth()
		if err != nil {
			return err
		}
		whose, err := p.whose(card)
		if err != nil {
			return err
		}
		for _, s := range truth.Slots {
			tenant, ok := whose[s.Number]
			if !ok {
				continue
			}
			if err := loaded(s.PID, paths[tenant]); err != nil {
				return fmt.Errorf("%w\n%s", err, p.actors[tenant].program.Complaints())
			}
		}
	}
	return nil
}
