// SPDX-License-Identifier: Apache-2.0

package elfdeps

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrMissing says that a library was not found on this machine.
var ErrMissing = errors.New("shared library not found")

// File is a file of this machine and its place in an image.
type File struct{ Source, Path string }

// Resolver looks for libraries.
type Resolver struct {
	// Directories are searched after a program's own run path.
	Directories []string
	// Provided are sonames that something else brings, at run time or as a file of its own.
	Provided []string
}

// NewResolver searches where this machine's loader does.
func NewResolver(provided []string) (Resolver, error) {
	directories, err := configured("/etc/ld.so.conf", 0)
	if err != nil {
		return Resolver{}, err
	}
	directories = append(directories, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	return Resolver{Directories: directories, Provided: provided}, nil
}

// Resolve returns what has to lie beside the given files for them to start,
// sorted by path. Libraries go where they are on this machine, where a loader
// looks without a cache; those found relative to a program go to the same place
// relative to it.
func (r Resolver) Resolve(files []File) ([]File, error) {
	seen := map[string]File{}
	for _, f := range files {
		seen[f.Path] = f
	}
	var needed []File
	queue := slices.Clone(files)
	for len(queue) > 0 {
		file := queue[0]
		queue = queue[1:]
		more, err := r.direct(file)
		if err != nil {
			return nil, fmt.Errorf("resolve libraries of %s: %w", file.Source, err)
		}
		for _, m := range more {
			if _, ok := seen[m.Path]; !ok {
				seen[m.Path] = m
				needed = append(needed, m)
				queue = append(queue, m)
			}
		}
	}
	slices.SortFunc(needed, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return needed, nil
}

// direct lists what one file asks for itself. Files other than ELF ask for nothing.
func (r Resolver) direct(file File) (needed []File, err error) {
	header, err := open(file.Source)
	if err != nil || header == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, header.Close()) }()
	if loader, err := interpreter(header); err != nil {
		return nil, err
	} else if loader != "" {
		needed = append(needed, File{Source: loader, Path: loader})
	}
	names, err := header.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read needed libraries: %w", err)
	}
	for _, name := range names {
		if slices.Contains(r.Provided, name) {
			continue
		}
		found, err := r.find(file, header, name)
		if err != nil {
			return nil, err
		}
		needed = append(needed, found)
	}
	return needed, nil
}

// find looks a library up in the file's run path, then in the machine's directories.
func (r Resolver) find(file File, header *elf.File, name string) (File, error) {
	if strings.Contains(name, "/") {
		return File{Source: name, Path: name}, nil
	}
	for _, dir := range runPath(header) {
		source := strings.NewReplacer("$ORIGIN", filepath.Dir(file.Source), "${ORIGIN}", filepath.Dir(file.Source)).Replace(dir)
		if matches(filepath.Join(source, name), header) {
			target := strings.NewReplacer("$ORIGIN", path.Dir(file.Path), "${ORIGIN}", path.Dir(file.Path)).Replace(dir)
			return File{Source: filepath.Join(source, name), Path: path.Join(target, name)}, nil
		}
	}
	for _, dir := range r.Directories {
		if source := filepath.Join(dir, name); matches(source, header) {
			return File{Source: source, Path: source}, nil
		}
	}
	return File{}, fmt.Errorf("find %s (searched %s): %w", name, strings.Join(r.Directories, ", "), ErrMissing)
}

// runPath is DT_RUNPATH, or DT_RPATH where that is absent.
func runPath(header *elf.File) []string {
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		if values, err := header.DynString(tag); err == nil && len(values) > 0 {
			return strings.Split(strings.Join(values, ":"), ":")
		}
	}
	return nil
}

// matches says whether the file is a library for the same machine: directories
// of several architectures may lie side by side.
func matches(file string, like *elf.File) bool {
	header, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer header.Close() //nolint:errcheck // opened for reading
	return header.Class == like.Class && header.Machine == like.Machine
}

// open returns nil for what is no ELF file.
func open(file string) (*elf.File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	magic := make([]byte, len(elf.ELFMAG))
	n, err := f.ReadAt(magic, 0)
	if err := errors.Join(ignoreEnd(err), f.Close()); err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	if string(magic[:n]) != elf.ELFMAG {
		return nil, nil //nolint:nilnil // stated above
	}
	header, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	return header, nil
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func interpreter(header *elf.File) (string, error) {
	for _, segment := range header.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(segment.Open())
		if err != nil {
			return "", fmt.Errorf("read loader's name: %w", err)
		}
		return strings.TrimRight(string(name), "\x00"), nil
	}
	return "", nil
}
