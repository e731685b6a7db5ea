// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/arbiter"
)

// serveDebug answers on the socket while this process serves the node. That nobody
// can ask keeps the arbiter from nothing else: it says so and goes on.
func serveDebug(ctx context.Context, path string, a *arbiter.Arbiter) {
	if path == "" {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-a.Started():
	}
	listener, err := listenDebug(ctx, path)
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Answering tranche-arbiter status", "socket", path)
		err = serveOn(ctx, listener, a.DebugHandler())
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "tranche-arbiter status gets no answer", "socket", path)
	}
}

// listenDebug opens the socket for root alone, in the place of one that an earlier
// arbiter left.
func listenDebug(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	var config net.ListenConfig
	opened, err := config.Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if listener, ok := opened.(*net.UnixListener); ok {
		listener.SetUnlinkOnClose(false) // by then it may be another's
	}
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), opened.Close())
	}
	return opened, nil
}

// serveOn serves until ctx ends.
func serveOn(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		return errors.Join(server.Close(), ignoreClosed(<-done))
	case err := <-done:
		return err
	}
}
