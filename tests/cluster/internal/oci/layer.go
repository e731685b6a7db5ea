// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// File is one entry of an image.
type File struct {
	// Path in the image, absolute.
	Path string
	// Source is the file of this machine that is copied. Links are followed.
	Source string
	// Link is a symbolic link's target, instead of a Source.
	Link string
}

// ErrConflict says that two different things want one path of the image.
var ErrConflict = errors.New("path is used twice")

// skeleton are directories that a container runtime or most programs expect. Modes as usual.
var skeleton = map[string]int64{"/dev": 0o755, "/etc": 0o755, "/proc": 0o755, "/run": 0o755, "/sys": 0o755, "/tmp": 0o1777}

// writeLayer writes the files, and the directories they need, in the order of their paths.
func writeLayer(w io.Writer, files []File) error {
	entries, err := plan(files)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, e := range entries {
		if err := e.write(archive); err != nil {
			return fmt.Errorf("add %s: %w", e.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("finish layer: %w", err)
	}
	return nil
}

// entry is a File, or a directory.
type entry struct {
	File
	directory bool
	mode      int64
}

// plan adds directories, drops repetitions and sorts.
func plan(files []File) ([]entry, error) {
	byPath := map[string]entry{}
	for dir, mode := range skeleton {
		byPath[dir] = entry{File: File{Path: dir}, directory: true, mode: mode}
	}
	for _, f := range files {
		f.Path = path.Clean("/" + f.Path)
		if before, ok := byPath[f.Path]; ok && before.File != f {
			return nil, fmt.Errorf("add %s: %w", f.Path, ErrConflict)
		}
		byPath[f.Path] = entry{File: f}
	}
	for _, f := range files {
		for dir := path.Dir(path.Clean("/" + f.Path)); dir != "/"; dir = path.Dir(dir) {
			before, ok := byPath[dir]
			if ok && !before.directory {
				return nil, fmt.Errorf("add %s: %s is no directory: %w", f.Path, dir, ErrConflict)
			}
			if !ok {
				byPath[dir] = entry{File: File{Path: dir}, directory: true, mode: 0o755}
			}
		}
	}
	entries := make([]entry, 0, len(byPath))
	for _, e := range byPath {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	return entries, nil
}

func (e entry) write(archive *tar.Writer) (err error) {
	h := &tar.Header{Name: strings.TrimPrefix(e.Path, "/"), Mode: e.mode, Format: tar.FormatPAX}
	switch {
	case e.directory:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return archive.WriteHeader(h)
	case e.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Link, 0o777
		return archive.WriteHeader(h)
	}
	source, err := os.Open(e.Source)
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	info, err := source.Stat()
	if err != nil {
		return fmt.Errorf("inspect source: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("read source %s: not a regular file", e.Source)
	}
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), 0o644
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o755
	}
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.Copy(archive, source); err != nil {
		return fmt.Errorf("copy source: %w", err)
	}
	return nil
}

func environment(env []string) []string {
	for _, pair := range env {
		if strings.HasPrefix(pair, "PATH=") {
			return env
		}
	}
	return append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
}
