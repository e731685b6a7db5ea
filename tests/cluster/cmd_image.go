// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/tranche-dra/tranche/tests/cluster/internal/elfdeps"
	"github.com/tranche-dra/tranche/tests/cluster/internal/oci"
)

func image(args []string) (int, error) {
	var img oci.Image
	var entrypoint, env, links, provided list
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: tranche-cluster image --output FILE --name NAME:TAG [flags] SRC=DST...\n"+
			"SRC is a file or a directory of this machine, DST its path in the image. The loader and the shared\n"+
			"libraries of dynamically linked programs are added.")
		flags.PrintDefaults()
	}
	output := flags.String("output", "", "archive to write")
	flags.StringVar(&img.Name, "name", "", "full name with tag, such as localhost/tranche/node:dev")
	flags.Var(&entrypoint, "entrypoint", "program to start; repeat for its arguments")
	flags.Var(&env, "env", "NAME=value; may be repeated")
	flags.StringVar(&img.User, "user", "", "user or user:group, root where empty")
	flags.StringVar(&img.WorkingDir, "dir", "", "working directory")
	flags.Var(&links, "link", "PATH=TARGET: a symbolic link in the image; may be repeated")
	flags.Var(&provided, "provided-lib", "library that something else brings at run time, such as libcuda.so.1; may be repeated")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if *output == "" || !strings.Contains(path.Base(img.Name), ":") || flags.NArg() == 0 {
		return 2, errors.New("make an image: --output, --name NAME:TAG and at least one SRC=DST are needed")
	}
	img.Entrypoint, img.Env = entrypoint, env
	files, err := contents(flags.Args(), links, provided)
	if err != nil {
		return 0, err
	}
	img.Files = files
	return 0, oci.WriteFile(*output, img)
}

// contents lists the files, what they need to start, and the links.
func contents(pairs, links, provided []string) ([]oci.File, error) {
	var sources []elfdeps.File
	for _, pair := range pairs {
		source, target, ok := strings.Cut(pair, "=")
		if !ok || !path.IsAbs(target) {
			return nil, fmt.Errorf("parse %s: not SRC=DST with an absolute DST", pair)
		}
		more, err := expand(source, target)
		if err != nil {
			return nil, err
		}
		sources = append(sources, more...)
	}
	for _, s := range sources {
		provided = append(provided, path.Base(s.Path)) // a library that is itself in the list
	}
	resolver, err := elfdeps.NewResolver(provided)
	if err != nil {
		return nil, err
	}
	libraries, err := resolver.Resolve(sources)
	if err != nil {
		return nil, err
	}
	var files []oci.File
	for _, f := range append(sources, libraries...) {
		files = append(files, oci.File{Path: f.Path, Source: f.Source})
	}
	for _, pair := range links {
		link, target, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("parse --link %s: not PATH=TARGET", pair)
		}
		files = append(files, oci.File{Path: link, Link: target})
	}
	return files, nil
}

// expand replaces a directory by the files in it.
func expand(source, target string) ([]elfdeps.File, error) {
	var files []elfdeps.File
	err := filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		files = append(files, elfdeps.File{Source: file, Path: path.Join(target, filepath.ToSlash(relative))})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", source, err)
	}
	return files, nil
}
