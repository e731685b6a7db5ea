// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// furnish gives the calling thread a mount namespace with what cfg says.
func furnish(cfg Config) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("take mounts out of propagation: %w", err)
	}
	// Set-user-ID programs count in a container's own files, and so here.
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := os.MkdirAll(TrancheDir, 0o755); err != nil {
		return err
	}
	for key, dir := range cfg.Shares {
		if err := bind(dir, filepath.Join(TrancheDir, key), unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	for uuid, dir := range cfg.Cards {
		if err := bind(dir, filepath.Join(CardsDir, uuid), unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	for target, dir := range map[string]string{DriverDir: cfg.Driver, LibraryDir: cfg.Library, ProgramDir: cfg.Programs} {
		if dir == "" {
			continue
		}
		if err := bind(dir, target, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV); err != nil {
			return err
		}
	}
	return nil
}

// bind makes a directory, and everything mounted below it, visible at target,
// which is made.
func bind(source, target string, flags uintptr) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("bind %s to %s with flags %#x: %w", source, target, flags, err)
	}
	return nil
}

// Cover makes a file of the box's own files stand at the path of another file
// that exists already.
func (b *Box) Cover(source, target string) error {
	return b.Do(func() error {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s over %s: %w", source, target, err)
		}
		return nil
	})
}

// loaderCaches are the loader's caches that were made, by the names of the files
// in the library directory: all boxes have it at the same path.
var loaderCaches struct {
	sync.Mutex
	byNames map[string][]byte
}

const loaderCache = "/etc/ld.so.cache"

// coverLoaderCache lets the loader find LibraryDir, as it finds the directory of
// libraries in which a container runtime puts the driver's: without any
// environment variable, and for set-user-ID programs too.
func (b *Box) coverLoaderCache() error {
	var names string
	if err := b.Do(func() error {
		entries, err := os.ReadDir(LibraryDir)
		names = fmt.Sprint(entries)
		return err
	}); err != nil {
		return err
	}
	loaderCaches.Lock()
	defer loaderCaches.Unlock()
	content, ok := loaderCaches.byNames[names]
	if !ok {
		var err error
		if content, err = b.makeLoaderCache(); err != nil {
			return fmt.Errorf("make the loader's cache: %w", err)
		}
		if loaderCaches.byNames == nil {
			loaderCaches.byNames = map[string][]byte{}
		}
		loaderCaches.byNames[names] = content
	}
	const private = "/run/ld.so.cache"
	if err := b.Do(func() error { return os.WriteFile(private, content, 0o644) }); err != nil {
		return err
	}
	return b.Cover(private, loaderCache)
}

// makeLoaderCache runs ldconfig, which keeps a cache of its own besides, in
// /var/cache/ldconfig: that is covered first.
func (b *Box) makeLoaderCache() ([]byte, error) {
	const config, made = "/run/ld.so.conf", "/run/ld.so.cache.made"
	if err := b.Do(func() error {
		if _, err := os.Stat("/var/cache/ldconfig"); err == nil {
			if err := unix.Mount("tmpfs", "/var/cache/ldconfig", "tmpfs", 0, "mode=0700"); err != nil {
				return err
			}
		}
		return os.WriteFile(config, []byte(LibraryDir+"\ninclude /etc/ld.so.conf\n"), 0o644)
	}); err != nil {
		return nil, err
	}
	if out, err := b.Output(exec.Command("/sbin/ldconfig", "-X", "-f", config, "-C", made)); err != nil {
		return nil, fmt.Errorf("ldconfig: %w: %s", err, out)
	}
	var content []byte
	err := b.Do(func() error {
		var err error
		content, err = os.ReadFile(made)
		return err
	})
	return content, err
}

// Output runs a program in the box and returns what it printed to its standard
// output and error.
func (b *Box) Output(cmd *exec.Cmd) (string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close() //nolint:errcheck // nothing was written
	cmd.Stdout, cmd.Stderr = write, write
	program, err := b.Start(cmd)
	write.Close() //nolint:errcheck // ours of two ends
	if err != nil {
		return "", err
	}
	// A program that leaves a child behind is waited for until that has ended too.
	said, err := io.ReadAll(read)
	if werr := program.Wait(); werr != nil {
		err = werr
	}
	return string(said), err
}
