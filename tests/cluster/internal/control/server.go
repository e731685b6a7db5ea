// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/supervisor"
)

// deadline of one operation: a component that comes up on a busy machine, after one that was slow to go.
const deadline = 2 * time.Minute

// Components is what the control acts on.
type Components interface {
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Restart(ctx context.Context, name string) error
	Kill(ctx context.Context, name string) error
	Status() []supervisor.State
}

// Listen makes the socket. From then on a client waits for Serve instead of failing.
func Listen(ctx context.Context, socket string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for control: %w", err)
	}
	return listener, nil
}

// Serve answers until the context ends, and closes the listener.
func Serve(ctx context.Context, listener net.Listener, components Components) error {
	server := &http.Server{
		Handler:           handler(components),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve control: %w", err)
	}
	return nil
}

func handler(components Components) http.Handler {
	verbs := map[string]func(context.Context, string) error{
		"start":   components.Start,
		"stop":    components.Stop,
		"restart": components.Restart,
		"kill":    components.Kill,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{verb}/{component}", func(w http.ResponseWriter, r *http.Request) {
		act, ok := verbs[r.PathValue("verb")]
		if !ok {
			http.Error(w, "no such verb; there are start, stop, restart and kill", http.StatusNotFound)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), deadline)
		defer cancel()
		if err := act(ctx, r.PathValue("component")); err != nil {
			status := http.StatusInternalServerError
			if errors.Is(err, supervisor.ErrUnknown) {
				status = http.StatusNotFound
			}
			http.Error(w, err.Error(), status)
		}
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(components.Status()) // the client is gone: nobody to tell
	})
	return mux
}
