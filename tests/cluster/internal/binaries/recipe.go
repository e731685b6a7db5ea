// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// step is one call of go build.
type step struct {
	// what is built, and how long the first time takes, for people.
	what, expect string
	// dir of the module below the sources.
	dir string
	// output is a file, or a directory where there are several packages.
	output   string
	packages []string
	// ldflags are what the linker is told beside the common flags.
	ldflags []string
	// links are further names of the output.
	links []string
}

// sourceFiles are what the programs depend on; everything else is pinned by the go.sum files.
var sourceFiles = []string{
	"kube/go.mod", "kube/go.sum", "kube/main.go",
	"containerd/go.mod", "containerd/go.sum",
	"kwok/go.mod", "kwok/go.sum",
	"pause/main.go",
}

// Another CGO_ENABLED or -trimpath would compile every package again.
var (
	flags       = []string{"build", "-v", "-trimpath", "-buildvcs=false"}
	environment = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"}
	strip       = []string{"-s", "-w"}
)

const (
	kubernetesVersion = "v1.37.2"
	containerdVersion = "v2.4.2"
	containerdModule  = "github.com/containerd/containerd/v2"
	cniPlugins        = "github.com/containernetworking/plugins/plugins"
	kwokVersion       = "v0.8.0"
	kwokModule        = "sigs.k8s.io/kwok"
)

func steps() []step {
	return []step{
		{
			what: "pause", expect: "seconds",
			dir: ".", output: "pause", packages: []string{"./pause"},
		},
		{
			what: "containerd " + containerdVersion + " and the CNI plugins", expect: "the first build takes some 2 minutes on 2 cores",
			dir: "containerd", output: ".",
			packages: []string{
				containerdModule + "/cmd/containerd", containerdModule + "/cmd/containerd-shim-runc-v2", containerdModule + "/cmd/ctr",
				cniPlugins + "/main/bridge", cniPlugins + "/ipam/host-local",
			},
			ldflags: []string{"-X", containerdModule + "/version.Version=" + containerdVersion},
		},
		{
			what: "Kubernetes " + kubernetesVersion + " and etcd", expect: "the first build takes some 10 minutes on 2 cores",
			dir: "kube", output: "kube", packages: []string{"."},
			ldflags: kubernetesStamp(),
			links:   []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"},
		},
		{ // after Kubernetes, whose packages it shares
			what: "kwok " + kwokVersion, expect: "the first build takes a minute on 2 cores",
			dir: "kwok", output: "kwok", packages: []string{kwokModule + "/cmd/kwok"},
		},
	}
}

// kubernetesStamp is the version that the components tell. Unstamped they say v0.0.0, which clients refuse.
func kubernetesStamp() []string {
	parts := strings.Split(strings.TrimPrefix(kubernetesVersion, "v"), ".")
	values := []string{
		"gitVersion=" + kubernetesVersion, "gitMajor=" + parts[0], "gitMinor=" + parts[1],
		"gitTreeState=clean", "gitCommit=unknown", "buildDate=1970-01-01T00:00:00Z",
	}
	var stamp []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, value := range values {
			stamp = append(stamp, "-X", pkg+"."+value)
		}
	}
	return stamp
}

// hash names the results of building the sources with the given Go version.
func hash(sources, goVersion string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s/%s %q %q %q\n", goVersion, runtime.GOOS, runtime.GOARCH, flags, environment, strip)
	for _, s := range steps() {
		fmt.Fprintf(sum, "%q %q %q %q %q\n", s.dir, s.output, s.packages, s.ldflags, s.links)
	}
	for _, name := range slices.Sorted(slices.Values(sourceFiles)) {
		if err := hashFile(sum, sources, name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func hashFile(sum io.Writer, sources, name string) error {
	content, err := os.ReadFile(filepath.Join(sources, name))
	if err != nil {
		return fmt.Errorf("hash sources: %w", err)
	}
	fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
	return nil
}
