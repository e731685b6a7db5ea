// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

// How long a client of the HTTP server may take, and keep a connection that it
// does not use: anybody on the network can open more than there are files for.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 20 * time.Second
)

// listen opens the address, or nothing where it is empty.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // no address, no listener
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	return listener, nil
}

// prober tells how the arbiter is.
type prober interface {
	Ready() error
	Alive(ctx context.Context) error
}

// handler answers probes and Prometheus.
func handler(p prober, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, p.Ready()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { answer(w, p.Alive(r.Context())) })
	return mux
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, err)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, listener net.Listener, h http.Handler) error {
	if listener == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Serving metrics and readiness", "address", listener.Addr().String())
	if err := serveOn(ctx, listener, h); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
