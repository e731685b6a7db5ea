// SPDX-License-Identifier: Apache-2.0

package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// errUnavailable: the packages cannot be had here, and nothing can be said of
// them.
var errUnavailable = errors.New("NVIDIA's packages cannot be had from Debian's non-free here")

// debian fetches packages with a configuration of its own.
type debian struct {
	dir    string // apt's state, and the packages
	config string
}

// newDebian prepares apt for the suites.
func newDebian(ctx context.Context, suites ...string) (*debian, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache: %w", err)
	}
	d := &debian{dir: filepath.Join(cache, "tranche", "abi")}
	d.config = filepath.Join(d.dir, "apt.conf")
	mirror, err := mirror(ctx)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"lists/partial", "archives/partial", "packages"} {
		if err := os.MkdirAll(filepath.Join(d.dir, dir), 0o755); err != nil {
			return nil, fmt.Errorf("make the cache: %w", err)
		}
	}
	var sources strings.Builder
	for _, suite := range suites {
		fmt.Fprintf(&sources, "deb %s %s non-free\n", mirror, suite)
	}
	configuration := fmt.Sprintf(`Dir::State::Lists "%[1]s/lists";
Dir::Cache "%[1]s";
Dir::Cache::Archives "%[1]s/archives";
Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "-";
APT::Sandbox::User "%[2]s";
`, d.dir, user())
	for name, content := range map[string]string{"sources.list": sources.String(), "apt.conf": configuration} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("configure apt: %w", err)
		}
	}
	return d, nil
}

// user that apt does its downloads as: whoever calls, or root in place of a user who
// cannot see the cache.
func user() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return ""
}

// keyring is where Debian's machines have the keys of the archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// mirror is where the machine has Debian from, as in a line of sources.list.
func mirror(ctx context.Context) (string, error) {
	format := "$(TARGET_OF) $(ORIGIN) $(COMPONENT) $(REPO_URI)"
	output, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", format, "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("%w: ask apt for the mirror: %w", errUnavailable, err)
	}
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) != 4 || fields[0] != "deb" || fields[1] != "Debian" || fields[2] != "main" || !strings.HasSuffix(fields[3], "/debian/") {
			continue
		}
		if _, err := os.Stat(keyring); err == nil {
			return fmt.Sprintf("[signed-by=%s] %s", keyring, fields[3]), nil
		}
		return fields[3], nil
	}
	return "", fmt.Errorf("%w: apt on this machine has no mirror of Debian", errUnavailable)
}

func (d *debian) apt(ctx context.Context, dir string, arguments ...string) error {
	command := exec.CommandContext(ctx, "apt-get", arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), "APT_CONFIG="+d.config, "LC_ALL=C")
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: apt-get %s: %w: %s", errUnavailable, strings.Join(arguments, " "), err, lastLine(output))
	}
	return nil
}

func lastLine(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return lines[len(lines)-1]
}

const listsAge = 24 * time.Hour

// update reads the lists of packages, unless they are fresh.
func (d *debian) update(ctx context.Context) error {
	stamp := filepath.Join(d.dir, "updated")
	sources, err := os.ReadFile(filepath.Join(d.dir, "sources.list"))
	if err != nil {
		return fmt.Errorf("read sources: %w", err)
	}
	before, err := os.ReadFile(stamp)
	if info, statErr := os.Stat(stamp); err == nil && statErr == nil && time.Since(info.ModTime()) < listsAge && bytes.Equal(before, sources) {
		return nil
	}
	if err := d.apt(ctx, d.dir, "update", "-qq", "-o", "APT::Update::Error-Mode=any"); err != nil {
		return err
	}
	if err := os.WriteFile(stamp, sources, 0o600); err != nil {
		return fmt.Errorf("mark the lists: %w", err)
	}
	return nil
}

// extract returns a directory with the files of a package that fit one of the patterns,
// fetching it where the cache lacks it.
func (d *debian) extract(ctx context.Context, name, suite string, patterns ...string) (string, error) {
	dir := filepath.Join(d.dir, "packages", name+"_"+suite)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := d.update(ctx); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(d.dir, "fetch-")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // what is left is only in the cache
	if err := d.apt(ctx, work, "download", "-qq", name+"/"+suite); err != nil {
		return "", err
	}
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(packages) != 1 {
		return "", fmt.Errorf("%w: apt-get download %s left %d files", errUnavailable, name, len(packages))
	}
	files := filepath.Join(work, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	script := `dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards "${@:3}"`
	arguments := append([]string{"-o", "pipefail", "-c", script, "bash", packages[0], files}, patterns...)
	if output, err := exec.CommandContext(ctx, "bash", arguments...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", name, err, lastLine(output))
	}
	if err := os.Rename(files, dir); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	return dir, nil
}
