// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
)

// Root is a directory of the host under which driver files lie as they
// otherwise would under "/", and where this process sees that directory.
type Root struct {
	// Host is the path on the host: "/", or for example "/run/nvidia/driver"
	// where a container installs the driver.
	Host string
	// Here is the path in this process's file system. Empty means Host.
	Here string
}

// complete fills in what was left out and checks that both paths can be told
// apart from one another in a list of paths.
func (r Root) complete() (Root, error) {
	if r.Here == "" {
		r.Here = r.Host
	}
	for _, p := range []string{r.Host, r.Here} {
		if !filepath.IsAbs(p) {
			return Root{}, fmt.Errorf("driver root %q is not an absolute path", p)
		}
	}
	r.Host, r.Here = filepath.Clean(r.Host), filepath.Clean(r.Here)
	if r.Here == "/" && r.Host != "/" {
		return Root{}, fmt.Errorf("driver root %s of the host cannot be seen as / here: mount it at a directory of its own", r.Host)
	}
	return r, nil
}

// devRoot is where the device nodes are when nobody said so: with the driver
// if that has them, as with a driver that a container installs, and otherwise
// in the host's own /dev.
func devRoot(driver Root) Root {
	if _, err := os.Stat(filepath.Join(driver.Here, "dev", "nvidiactl")); err == nil {
		return driver
	}
	return Root{Host: "/", Here: "/"}
}

// toHost turns paths under Here into paths under Host. The device nodes go
// first: their root may lie below the driver's or the other way round, and
// only "/dev" tells them apart. What is left of Here in paths of the container
// comes from links that nvcdi found by their full path; there they must be
// paths below "/".
func toHost(driver, dev Root) transform.Transformer {
	move := func(here, there, relativeTo string) transform.Transformer {
		return root.New(root.WithRoot(here), root.WithTargetRoot(there), root.WithRelativeTo(relativeTo))
	}
	return transform.Merge(
		move(filepath.Join(dev.Here, "dev"), filepath.Join(dev.Host, "dev"), "host"),
		move(driver.Here, driver.Host, "host"),
		move(filepath.Join(dev.Here, "dev"), "/dev", "container"),
	)
}
