// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tranche-dra/tranche/cdi"
)

var (
	// ErrNotInstalled says that a version is not in the root.
	ErrNotInstalled = errors.New("the sharing runtime is not installed")
	// ErrDamaged says that the content is not what the name says.
	ErrDamaged = errors.New("the content does not fit its digest")
)

// Digest names a version of the libraries: "sha256:<64 hexadecimal digits>".
type Digest string

const algorithm = "sha256"

// dir is the name of the version's directory.
func (d Digest) dir() (string, error) {
	name, hexadecimal, _ := strings.Cut(string(d), ":")
	if sum, err := hex.DecodeString(hexadecimal); name != algorithm || err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("digest %q is not %s:<%d hexadecimal digits>", string(d), algorithm, 2*sha256.Size)
	}
	return name + "-" + hexadecimal, nil
}

// digestOf is the version whose directory has that name.
func digestOf(name string) (Digest, bool) {
	kind, hexadecimal, _ := strings.Cut(name, "-")
	d := Digest(kind + ":" + hexadecimal)
	again, err := d.dir()
	return d, err == nil && again == name
}

// files are what a version consists of, sorted, relative to its directory.
func files() []string {
	var list []string
	for _, name := range cdi.Substituted() {
		list = append(list, cdi.Runtime{}.Library(name), cdi.Runtime{}.Simulated(name))
	}
	slices.Sort(list)
	return list
}

// Of computes the digest of the libraries in a directory. It is made of the
// names and digests of the files, one line each in the order of the names.
func Of(dir string) (Digest, error) {
	all := sha256.New()
	for _, name := range files() {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("compute the digest of the libraries in %s: %w", dir, err)
		}
		_, _ = fmt.Fprintf(all, "%s  %s\n", sum, name)
	}
	return Digest(algorithm + ":" + hex.EncodeToString(all.Sum(nil))), nil
}

func sumOf(path string) (sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
