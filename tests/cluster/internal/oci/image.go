// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// nameAnnotation is what containerd calls the image after its import
// (github.com/containerd/containerd/v2/core/images, AnnotationImageName).
const nameAnnotation = "io.containerd.image.name"

// Image says what an image is made of.
type Image struct {
	// Name is the full reference with its tag, such as localhost/tranche/node:dev.
	Name       string
	Entrypoint []string
	// Env are NAME=value pairs. Without a PATH among them the usual one is set.
	Env []string
	// User is a user, or user:group, in numbers or by name.
	User       string
	WorkingDir string
	Files      []File
}

// WriteFile writes the image as a tar archive; the file appears whole or not at all.
func WriteFile(path string, image Image) (err error) {
	layer, err := os.CreateTemp(filepath.Dir(path), ".layer-")
	if err != nil {
		return fmt.Errorf("create layer: %w", err)
	}
	defer func() { err = errors.Join(err, layer.Close(), os.Remove(layer.Name())) }()
	sum := &counter{Hash: sha256.New()}
	if err := writeLayer(io.MultiWriter(layer, sum), image.Files); err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("rewind layer: %w", err)
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".image-")
	if err != nil {
		return fmt.Errorf("create image: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(draft.Name()))
		}
	}()
	if err := errors.Join(writeLayout(draft, image, layer, sum), draft.Chmod(0o644), draft.Close()); err != nil {
		return err
	}
	if err := os.Rename(draft.Name(), path); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	return nil
}

// counter is a hash that knows how much went in.
type counter struct {
	hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.Hash.Write(p)
}

func (c *counter) descriptor(mediaType string) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Digest: digest.NewDigest(digest.SHA256, c.Hash), Size: c.size}
}

// writeLayout writes the image layout: the layer's blob is copied from layer.
func writeLayout(w io.Writer, image Image, layer io.Reader, sum *counter) error {
	platform := v1.Platform{Architecture: runtime.GOARCH, OS: "linux"}
	layerDescriptor := sum.descriptor(v1.MediaTypeImageLayer)
	config, configBlob, err := document(v1.MediaTypeImageConfig, v1.Image{
		Platform: platform,
		Config: v1.ImageConfig{
			User: image.User, Entrypoint: image.Entrypoint, Env: environment(image.Env), WorkingDir: image.WorkingDir,
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerDescriptor.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, manifestBlob, err := document(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: []v1.Descriptor{layerDescriptor},
	})
	if err != nil {
		return err
	}
	manifest.Platform = &platform
	manifest.Annotations = map[string]string{nameAnnotation: image.Name, v1.AnnotationRefName: image.Name}
	_, index, err := document(v1.MediaTypeImageIndex, v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{manifest},
	})
	if err != nil {
		return err
	}
	_, marker, err := document(v1.MediaTypeLayoutHeader, v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, blob := range []struct {
		name    string
		content []byte
	}{
		{v1.ImageLayoutFile, marker},
		{v1.ImageIndexFile, index},
		{blobPath(manifest.Digest), manifestBlob},
		{blobPath(config.Digest), configBlob},
	} {
		if err := archive.WriteHeader(header(blob.name, int64(len(blob.content)))); err != nil {
			return fmt.Errorf("write %s: %w", blob.name, err)
		}
		if _, err := archive.Write(blob.content); err != nil {
			return fmt.Errorf("write %s: %w", blob.name, err)
		}
	}
	if err := archive.WriteHeader(header(blobPath(layerDescriptor.Digest), layerDescriptor.Size)); err != nil {
		return fmt.Errorf("write layer: %w", err)
	}
	if _, err := io.Copy(archive, layer); err != nil {
		return fmt.Errorf("write layer: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("finish image: %w", err)
	}
	return nil
}

func document(mediaType string, value any) (v1.Descriptor, []byte, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, nil, fmt.Errorf("encode %s: %w", mediaType, err)
	}
	return v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}, content, nil
}

func blobPath(d digest.Digest) string {
	return filepath.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatUSTAR}
}
