// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// runtimeConfig is what a runtime tells of its CDI support. containerd puts its
// configuration as JSON into a verbose status: 1.7 has a switch that is off if
// nobody sets it, 2 has none but for an empty list of directories. CRI-O tells
// nothing of CDI.
type runtimeConfig struct {
	EnableCDI *bool `json:"enableCDI"`
	// SpecDirs is nil where the runtime does not tell, empty where CDI is off.
	SpecDirs []string `json:"cdiSpecDirs"`
}

func decodeRuntimeConfig(info string) (runtimeConfig, error) {
	var c runtimeConfig
	if err := json.Unmarshal([]byte(info), &c); err != nil {
		return runtimeConfig{}, fmt.Errorf("decode the runtime's configuration: %w", err)
	}
	return c, nil
}

// oldest releases that bring CDI.
const (
	oldestContainerd = "1.7.0-0"
	oldestCRIO       = "1.23.0-0"
)

// judge compares what the runtime says with what the driver needs.
func (r Runtime) judge(a runtimeAnswer) []Finding {
	who := fmt.Sprintf("%s %s at %s", a.name, a.version, a.socket)
	switch {
	case a.name == "containerd" && older(a.version, oldestContainerd):
		return one(Problem, who+" is too old for CDI", "upgrade to containerd 2, or to 1.7 with enable_cdi = true")
	case a.name == "cri-o" && older(a.version, oldestCRIO):
		return one(Problem, who+" is too old for CDI", "upgrade CRI-O to a release that is maintained")
	case a.config.EnableCDI != nil && !*a.config.EnableCDI:
		return one(Problem, "CDI is off in "+who,
			`set enable_cdi = true in section [plugins."io.containerd.grpc.v1.cri"] of its config.toml and restart it`)
	case a.config.SpecDirs == nil:
		return one(Warning, fmt.Sprintf("%s does not tell whether it reads CDI specs in %s", who, r.CDIRoot),
			"look at cdi_spec_dirs in its configuration (CRI-O: crio status config)")
	case len(a.config.SpecDirs) == 0:
		return one(Problem, "CDI is off in "+who+": its cdi_spec_dirs is empty", "add "+r.CDIRoot+" to cdi_spec_dirs and restart it")
	case !slices.ContainsFunc(a.config.SpecDirs, r.isCDIRoot):
		return one(Problem, fmt.Sprintf("%s reads CDI specs in %s, and not in %s where this driver writes them",
			who, strings.Join(a.config.SpecDirs, " and "), r.CDIRoot),
			"start the driver with --cdi-root and a mount of one of these, or add "+r.CDIRoot+" to cdi_spec_dirs and restart the runtime")
	}
	return one(OK, who+" reads CDI specs in "+r.CDIRoot, "")
}

// isCDIRoot tells whether a directory of the host is the CDI root of here. Where
// both can be seen, they are one directory or they are not; else the paths count.
func (r Runtime) isCDIRoot(dir string) bool {
	dir = withoutVarRun(dir)
	here, err := os.Stat(r.CDIRoot)
	there, err2 := os.Stat(filepath.Join(r.HostRoot, dir))
	if err == nil && err2 == nil {
		return os.SameFile(here, there)
	}
	return dir == withoutVarRun(r.CDIRoot)
}

// withoutVarRun is the path with /run for /var/run: a link, on the host, which
// would lead out of the place where a container sees the host.
func withoutVarRun(path string) string {
	path = filepath.Clean(path)
	if rest, found := strings.CutPrefix(path, "/var/run/"); found {
		return "/run/" + rest
	}
	return path
}

// older is false for versions that cannot be read: they are no reason to
// complain.
func older(found, than string) bool {
	v, err := version.ParseGeneric(found)
	return err == nil && v.LessThan(version.MustParseGeneric(than))
}
