// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipes is a listener in memory, whose time a test can make pass.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func TestConnectionsThatNobodyUsesAreClosed(t *testing.T) {
	t.Parallel()
	const request = "GET / HTTP/1.1\r\nHost: node\r\n"
	answered := func(t *testing.T, r *bufio.Reader) {
		t.Helper()
		answer, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "ok\n", string(body))
	}
	for name, tc := range map[string]struct {
		send  string
		then  func(*testing.T, *bufio.Reader)
		after time.Duration
	}{
		"a client that sends nothing":           {"", nil, headerTimeout},
		"a client that stops within its header": {request, nil, headerTimeout},
		"a client that stops within its body":   {request + "Content-Length: 5\r\n\r\nhal", answered, readTimeout},
		"a client that asks once and stays":     {request + "\r\n", answered, idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				listener := pipes{make(chan net.Conn), make(chan struct{})}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					done <- serveHTTP(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) }))
				}()
				here, there := net.Pipe()
				start := time.Now() // of the bubble
				listener.accept <- there
				_, err := io.WriteString(here, tc.send)
				require.NoError(t, err)
				reader := bufio.NewReader(here)
				if tc.then != nil {
					tc.then(t, reader)
				}
				// Where nothing closes the connection this never returns, and the bubble says so.
				_, err = io.Copy(io.Discard, reader)
				require.NoError(t, err)
				require.Equal(t, tc.after, time.Since(start))
				stop()
				require.NoError(t, <-done)
			})
		})
	}
}

func TestAReaderThatStopsDoesNotKeepTheServerBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := pipes{make(chan net.Conn), make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		wrote, done := make(chan error, 1), make(chan error, 1)
		go func() {
			done <- serveHTTP(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, err := w.Write(make([]byte, 1<<20))
				wrote <- err
			}))
		}()
		here, there := net.Pipe()
		listener.accept <- there
		_, err := io.WriteString(here, "GET / HTTP/1.1\r\nHost: node\r\n\r\n")
		require.NoError(t, err)
		require.Error(t, <-wrote)
		stop()
		require.NoError(t, <-done)
	})
}

func TestLettingGoOfCardsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		called, returns := false, make(chan struct{})
		letGo(func() { called = true }, time.Hour)
		require.True(t, called, "what can end is waited for")
		start := time.Now()
		letGo(func() { <-returns }, closeLimit)
		require.Equal(t, closeLimit, time.Since(start))
		close(returns)
	})
}
