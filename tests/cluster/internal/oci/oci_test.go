// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// files makes a program and a text file, and lists them in the given order.
func files(t *testing.T, reverse bool) []File {
	t.Helper()
	dir := t.TempDir()
	program, text := filepath.Join(dir, "program"), filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700))
	require.NoError(t, os.WriteFile(text, []byte("hello\n"), 0o600))
	list := []File{
		{Path: "/opt/app/program", Source: program},
		{Path: "/etc/text", Source: text},
		{Path: "/bin/sh", Link: "busybox"},
	}
	if reverse {
		list[0], list[2] = list[2], list[0]
	}
	return list
}

func image(list []File) Image {
	return Image{Name: "localhost/test/app:1", Entrypoint: []string{"/opt/app/program", "-v"}, User: "65532:65532", Env: []string{"A=b"}, Files: list}
}

func TestTheSameFilesGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	var archives [][]byte
	for _, reverse := range []bool{false, true} {
		list := files(t, reverse)
		stamp := time.Now().Add(-time.Duration(len(archives)+1) * time.Hour)
		for _, f := range list {
			if f.Source != "" {
				require.NoError(t, os.Chtimes(f.Source, stamp, stamp))
			}
		}
		archives = append(archives, written(t, image(list)))
	}
	require.True(t, bytes.Equal(archives[0], archives[1]), "order and times of the sources must not matter")
}

func TestEveryDigestIsRight(t *testing.T) {
	t.Parallel()
	blobs := untar(t, written(t, image(files(t, false))))
	var index v1.Index
	decode(t, blobs["index.json"].content, &index)
	require.Len(t, index.Manifests, 1)
	require.Equal(t, "localhost/test/app:1", index.Manifests[0].Annotations[nameAnnotation])
	var manifest v1.Manifest
	decode(t, blob(t, blobs, index.Manifests[0]), &manifest)
	var config v1.Image
	decode(t, blob(t, blobs, manifest.Config), &config)
	require.Len(t, manifest.Layers, 1)
	layer := blob(t, blobs, manifest.Layers[0])
	require.Equal(t, []digest.Digest{digest.FromBytes(layer)}, config.RootFS.DiffIDs)
	require.Equal(t, []string{"/opt/app/program", "-v"}, config.Config.Entrypoint)
	require.Equal(t, "65532:65532", config.Config.User)
	require.Len(t, config.Config.Env, 2, "a PATH is added")
}

func TestLayerHoldsFilesLinksAndTheirDirectories(t *testing.T) {
	t.Parallel()
	var layer bytes.Buffer
	require.NoError(t, writeLayer(&layer, files(t, false)))
	entries := untar(t, layer.Bytes())
	require.Equal(t, "hello\n", string(entries["etc/text"].content))
	require.EqualValues(t, 0o644, entries["etc/text"].header.Mode)
	require.EqualValues(t, 0o755, entries["opt/app/program"].header.Mode)
	require.Equal(t, "busybox", entries["bin/sh"].header.Linkname)
	require.EqualValues(t, 0o1777, entries["tmp/"].header.Mode)
	for name, e := range entries {
		require.Zero(t, e.header.Uid, name)
		require.True(t, e.header.ModTime.Equal(time.Unix(0, 0)), name)
	}
	require.Contains(t, entries, "opt/")
	require.Contains(t, entries, "opt/app/")
}

func TestConflictsAreRefused(t *testing.T) {
	t.Parallel()
	list := files(t, false)
	for name, more := range map[string]File{
		"two files at one path":   {Path: "/etc/text", Source: list[0].Source},
		"a file inside of a file": {Path: "/etc/text/below", Source: list[0].Source},
		"a file for a directory":  {Path: "/tmp", Source: list[0].Source},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, writeLayer(io.Discard, append([]File{more}, list...)), ErrConflict)
		})
	}
	require.NoError(t, writeLayer(io.Discard, append(list, list[0])), "the same file twice is one")
}

func TestFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := image([]File{{Path: "/a", Source: filepath.Join(dir, "absent")}})
	require.ErrorIs(t, WriteFile(filepath.Join(dir, "out.tar"), bad), os.ErrNotExist)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func written(t *testing.T, i Image) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "out.tar")
	require.NoError(t, WriteFile(file, i))
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}

type member struct {
	header  *tar.Header
	content []byte
}

func untar(t *testing.T, archive []byte) map[string]member {
	t.Helper()
	members := map[string]member{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		require.NoError(t, err)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		members[header.Name] = member{header, content}
	}
}

func blob(t *testing.T, members map[string]member, d v1.Descriptor) []byte {
	t.Helper()
	content := members[blobPath(d.Digest)].content
	require.Equal(t, d.Digest, digest.FromBytes(content))
	require.Len(t, content, int(d.Size))
	return content
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(content, into))
}
