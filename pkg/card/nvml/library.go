// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"os"
	"path/filepath"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

const libraryName = "libnvidia-ml.so.1"

// libraryDirectories under a driver root, in the order in which they are tried:
// multi-arch and plain distributions, driver containers, GKE and Talos.
func libraryDirectories() []string {
	return []string{
		"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib",
		"lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib",
		"usr/local/nvidia/lib64", "usr/local/lib", "usr/local/glibc/usr/lib",
	}
}

// Library is NVML as installed under the driver root, a directory as this
// process sees it. For the root of the file system, and where the root has no
// library, it is what the dynamic linker finds. Nothing is loaded yet.
func Library(driverRoot string) gonvml.Interface {
	if path := libraryPath(driverRoot); path != "" {
		return gonvml.New(gonvml.WithLibraryPath(path))
	}
	return gonvml.New()
}

func libraryPath(driverRoot string) string {
	if driverRoot == "" || filepath.Clean(driverRoot) == "/" {
		return ""
	}
	for _, dir := range libraryDirectories() {
		path := filepath.Join(driverRoot, dir, libraryName)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
