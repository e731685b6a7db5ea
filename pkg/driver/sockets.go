// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

const (
	// longestSocketPath in bytes: sockaddr_un has 108, and one ends the text.
	longestSocketPath = 107
	// staleAge is how old a socket must be before it can be taken for one that
	// was left behind: between bind and listen a live one looks the same.
	staleAge = 10 * time.Second
	// dialTimeout for a socket on this machine.
	dialTimeout = 2 * time.Second

	draPrefix, draSuffix = "dra", ".sock"
	regSuffix            = "-reg.sock"
)

// sockets are the two that this process serves.
type sockets struct {
	// dataDir holds the DRA socket of this driver's processes and of no other
	// driver; registryDir holds the registration sockets of all drivers.
	dataDir, registryDir string
	// The names in these directories.
	dra, registration string
}

func (s sockets) draPath() string          { return filepath.Join(s.dataDir, s.dra) }
func (s sockets) registrationPath() string { return filepath.Join(s.registryDir, s.registration) }

// socketsFor chooses names that tell two pods of a rolling update apart. They
// hold the pod's UID where there is room for it and a digest of it elsewhere.
// The publishing helper has such names too, but takes one that is a byte too
// long and ends in a name without the driver, which a later process could not
// recognise as left behind.
func socketsFor(kubeletRoot, driverName string, podUID types.UID) (sockets, error) {
	s := sockets{
		dataDir:     filepath.Join(kubeletRoot, "plugins", driverName),
		registryDir: filepath.Join(kubeletRoot, "plugins_registry"),
	}
	parts := []string{""}
	if podUID != "" {
		sum := sha256.Sum256([]byte(podUID))
		parts = []string{"-" + string(podUID), "-" + hex.EncodeToString(sum[:5])}
	}
	for _, part := range parts {
		s.dra, s.registration = draPrefix+part+draSuffix, driverName+part+regSuffix
		if len(s.draPath()) <= longestSocketPath && len(s.registrationPath()) <= longestSocketPath {
			return s, nil
		}
	}
	excess := max(len(s.draPath()), len(s.registrationPath())) - longestSocketPath
	return s, fmt.Errorf("choose sockets in kubelet's root %s: %w: it has %d bytes and may have at most %d",
		kubeletRoot, ErrPathTooLong, len(kubeletRoot), len(kubeletRoot)-excess)
}

func (s sockets) makeDirs() error {
	for _, dir := range []string{s.dataDir, s.registryDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make directory for sockets: %w", err)
		}
	}
	return nil
}

// removeStale removes sockets of this driver that nobody listens on: those of
// pods that were killed. Kubelet would go on dialling them. What cannot be
// removed is logged, because nothing depends on it.
func (s sockets) removeStale(ctx context.Context, driverName string, now time.Time) {
	for dir, prefix := range map[string]string{s.dataDir: draPrefix, s.registryDir: driverName} {
		suffix := draSuffix
		if dir == s.registryDir {
			suffix = regSuffix
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot look for sockets that were left behind", "dir", dir, "err", err)
			continue
		}
		for _, entry := range entries {
			name := entry.Name()
			middle, ours := strings.CutPrefix(strings.TrimSuffix(name, suffix), prefix)
			ours = ours && strings.HasSuffix(name, suffix) && (middle == "" || strings.HasPrefix(middle, "-"))
			if !ours || name == s.dra || name == s.registration {
				continue
			}
			removeIfStale(ctx, filepath.Join(dir, name), now)
		}
	}
}

func removeIfStale(ctx context.Context, path string, now time.Time) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket || now.Sub(info.ModTime()) < staleAge {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return // busy, or gone in this moment
	}
	logger := klog.FromContext(ctx)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Error(err, "Cannot remove a socket that was left behind", "path", path)
		return
	}
	logger.V(2).Info("Removed a socket that was left behind", "path", path)
}
