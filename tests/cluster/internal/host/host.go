// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// need is a program of the machine's that the cluster calls.
type need struct{ program, debian, why string }

// needs is short on purpose: whatever can be built from Go modules is. runc's
// start-up is C code against libseccomp, and mount is how kubelet mounts volumes.
var needs = []need{
	{"runc", "runc", "starts containers"},
	{"mount", "mount", "mounts volumes"},
}

// directories are searched beside PATH, which may lack those for administrators.
var directories = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"}

// Programs are the paths of what the cluster takes from the machine.
type Programs struct{ Runc string }

// Check returns the machine's programs, or an error that names everything that is
// missing and the remedy. On Debian, as root, it installs packages.
func Check(ctx context.Context, say func(format string, args ...any)) (Programs, error) {
	if runtime.GOOS != "linux" {
		return Programs{}, fmt.Errorf("run a cluster on %s: it takes Linux", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return Programs{}, errors.New("run a cluster as an ordinary user: it takes root (namespaces, mounts and cgroups); try sudo")
	}
	missing := absent()
	if len(missing) > 0 {
		apt, err := exec.LookPath("apt-get")
		if err != nil {
			return Programs{}, complain(missing)
		}
		if err := install(ctx, apt, missing, say); err != nil {
			return Programs{}, errors.Join(err, complain(missing))
		}
		if missing = absent(); len(missing) > 0 {
			return Programs{}, complain(missing)
		}
	}
	return Programs{Runc: find("runc")}, nil
}

func absent() []need {
	var missing []need
	for _, n := range needs {
		if find(n.program) == "" {
			missing = append(missing, n)
		}
	}
	return missing
}

// find is exec.LookPath with more directories.
func find(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, dir := range directories {
		if path, err := exec.LookPath(dir + "/" + program); err == nil {
			return path
		}
	}
	return ""
}

func complain(missing []need) error {
	var lines []string
	for _, n := range missing {
		lines = append(lines, fmt.Sprintf("%s (%s; Debian package %s)", n.program, n.why, n.debian))
	}
	return fmt.Errorf("find the programs of the machine: missing %s", strings.Join(lines, ", "))
}

func install(ctx context.Context, apt string, missing []need, say func(format string, args ...any)) error {
	args := []string{"install", "--yes", "--no-install-recommends"}
	for _, n := range missing {
		args = append(args, n.debian)
	}
	say("installing Debian packages: %s", strings.Join(args[3:], " "))
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, step := range [][]string{{"update"}, args} {
		command := exec.CommandContext(ctx, apt, step...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("run apt-get %s: %w\n%s", step[0], err, out)
		}
	}
	return nil
}
