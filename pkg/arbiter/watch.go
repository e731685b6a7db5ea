// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/share"
)

// maxDocument in bytes is more than a share.json may have.
const maxDocument = 64<<10 + 1

// watch notices what happens in the directories of shares.
type watch struct {
	root    string
	watcher *fsnotify.Watcher
}

func newWatch(root string) (*watch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch shares: %w", err)
	}
	if err := watcher.Add(root); err != nil {
		return nil, errors.Join(fmt.Errorf("watch shares: %w", err), watcher.Close())
	}
	return &watch{root: root, watcher: watcher}, nil
}

func (w *watch) close() error { return w.watcher.Close() }

// follow keeps the served shares in line with the directories until ctx ends.
func (a *Arbiter) follow(ctx context.Context, w *watch) error {
	if err := a.scan(ctx, w); err != nil {
		return err
	}
	if err := a.removeRosters(); err != nil {
		return err
	}
	a.compute.begin()
	a.serving.Store(true)
	ticker := time.NewTicker(a.config.Rescan)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-a.pings:
		case <-ticker.C:
			err = a.scan(ctx, w)
		case lost := <-w.watcher.Errors:
			klog.FromContext(ctx).Info("Looking at all shares, as changes may have been missed", "reason", lost.Error())
			err = a.scan(ctx, w)
		case event := <-w.watcher.Events:
			a.happened(ctx, w, event)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot look at all shares")
		}
	}
}

// happened looks at the share that an event is about.
func (a *Arbiter) happened(ctx context.Context, w *watch, event fsnotify.Event) {
	dir, name := filepath.Split(event.Name)
	switch {
	case filepath.Clean(dir) == filepath.Clean(w.root):
		a.look(ctx, w, share.Key(name))
	case name == cdi.ShareFileName:
		a.look(ctx, w, share.Key(filepath.Base(dir)))
	}
}

// scan looks at all shares.
func (a *Arbiter) scan(ctx context.Context, w *watch) error {
	entries, err := os.ReadDir(w.root)
	if err != nil {
		return fmt.Errorf("list shares: %w", err)
	}
	there := make(map[share.Key]bool, len(entries))
	for _, e := range entries {
		there[share.Key(e.Name())] = true
		a.look(ctx, w, share.Key(e.Name()))
	}
	for key := range a.known() {
		if !there[key] {
			a.look(ctx, w, key)
		}
	}
	return nil
}

// known are the keys of shares that are served, or were found wrong.
func (a *Arbiter) known() map[share.Key]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := make(map[share.Key]bool, len(a.shares))
	for key := range a.shares {
		keys[key] = true
	}
	for key := range a.told {
		keys[key] = true
	}
	return keys
}

// look brings one share in line with its directory. Only the goroutine that
// follows the directories calls it.
func (a *Arbiter) look(ctx context.Context, w *watch, key share.Key) {
	if _, ok := key.ClaimUID(); !ok {
		return
	}
	path := filepath.Join(w.root, string(key))
	// A directory is watched before it is looked at, so that nothing is missed.
	if err := w.watcher.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "Cannot watch a share: its changes are noticed late", "share", key)
	}
	document, dir, err := readShare(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		a.end(ctx, key)
	case err != nil:
		a.misunderstood(ctx, key, path, err)
	default:
		a.serve(ctx, key, path, document, dir)
	}
}

// readShare reads share.json, and gives the open directory that it is in.
func readShare(path string) (document cdi.ShareDocument, dir *os.File, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return document, nil, fmt.Errorf("open share's directory: %w", err)
	}
	dir = os.NewFile(uintptr(fd), path)
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Close())
		}
	}()
	fd, err = unix.Openat(fd, cdi.ShareFileName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return document, dir, fmt.Errorf("open share.json: %w", err)
	}
	file := os.NewFile(uintptr(fd), cdi.ShareFileName)
	data, err := io.ReadAll(io.LimitReader(file, maxDocument))
	if err := errors.Join(err, file.Close()); err != nil {
		return document, dir, fmt.Errorf("read share.json: %w", err)
	}
	document, err = cdi.ParseShareFile(data)
	if err == nil && string(document.Key) != filepath.Base(path) {
		err = fmt.Errorf("read share.json: it is of share %s", document.Key)
	}
	return document, dir, err
}

// serve makes that the share is served by what its share.json says. It owns dir.
func (a *Arbiter) serve(ctx context.Context, key share.Key, path string, document cdi.ShareDocument, dir *os.File) {
	logger := klog.FromContext(ctx)
	a.understood(ctx, key)
	s := a.of(key)
	if s != nil && s.card.id != document.Card.UUID {
		a.end(ctx, key) // another share under the same key
		s = nil
	}
	if s == nil {
		var err error
		if s, err = a.openShare(ctx, key, path, document); err != nil {
			logger.Error(err, "Cannot serve a share; it is tried again", "share", key)
			_ = dir.Close()
			return
		}
		a.mu.Lock()
		a.shares[key] = s
		a.mu.Unlock()
	} else {
		s.change(document)
	}
	if err := s.openSocket(ctx, dir); err != nil {
		logger.Error(err, "Cannot open the socket of a share; it is tried again", "share", key)
	}
}

// of is the share that is served under a key, or nil.
func (a *Arbiter) of(key share.Key) *served {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shares[key]
}

// end ends the service of a share that is no more.
func (a *Arbiter) end(ctx context.Context, key share.Key) {
	a.mu.Lock()
	s := a.shares[key]
	delete(a.shares, key)
	delete(a.told, key)
	a.mu.Unlock()
	if s == nil {
		return
	}
	s.endSocket(true)
	s.close(true)
	klog.FromContext(ctx).Info("A share has ended", "share", key)
}

// misunderstood stops new connections to a share whose share.json says something
// unknown; who is attached goes on with what was known before.
func (a *Arbiter) misunderstood(ctx context.Context, key share.Key, path string, reason error) {
	if s := a.of(key); s != nil {
		s.endSocket(true)
	}
	a.mu.Lock()
	was := a.told[key]
	a.told[key] = reason.Error()
	a.mu.Unlock()
	if was == reason.Error() {
		return
	}
	klog.FromContext(ctx).Error(reason, "A share is not served", "share", key)
	a.tellMisunderstood(path, key, reason)
}

// understood forgets what was wrong with a share.
func (a *Arbiter) understood(ctx context.Context, key share.Key) {
	a.mu.Lock()
	_, was := a.told[key]
	delete(a.told, key)
	a.mu.Unlock()
	if was {
		klog.FromContext(ctx).Info("A share can be served again", "share", key)
	}
}

func (a *Arbiter) removeRosters() error {
	known := a.known()
	return removeRosters(a.config.RunDir, func(key share.Key) bool { return known[key] })
}
