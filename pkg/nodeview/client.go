// SPDX-License-Identifier: Apache-2.0

package nodeview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const (
	// SocketName is the debug socket in the arbiter's --run-dir.
	SocketName = "debug.sock"
	// CardsPath answers with a Node.
	CardsPath = "/v1/cards"
	// maxAnswer in bytes is more than any node has to say.
	maxAnswer = 64 << 20
)

// ErrUnavailable: there is an arbiter, but it serves nothing at present.
var ErrUnavailable = errors.New("the arbiter does not serve the node at present")

// Get asks the arbiter that listens on the socket.
func Get(ctx context.Context, socket string) (Node, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://arbiter"+CardsPath, http.NoBody)
	if err != nil {
		return Node{}, fmt.Errorf("ask the arbiter: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return Node{}, fmt.Errorf("ask the arbiter: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // read as far as wanted
	body := io.LimitReader(answer.Body, maxAnswer)
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(body) // as much as came
		err := fmt.Errorf("ask the arbiter: %s: %s", answer.Status, strings.TrimSpace(string(said)))
		if answer.StatusCode == http.StatusServiceUnavailable {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return Node{}, err
	}
	var node Node
	if err := json.NewDecoder(body).Decode(&node); err != nil {
		return Node{}, fmt.Errorf("understand the arbiter: %w", err)
	}
	return node, nil
}
