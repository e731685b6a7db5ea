// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/tranche-dra/tranche/tests/cluster/internal/supervisor"
)

// Client speaks to a Serve.
type Client struct{ http http.Client }

// NewClient speaks over the unix socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{http: http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Do applies a verb to a component and returns once it is done.
func (c *Client) Do(ctx context.Context, verb, component string) error {
	_, err := c.call(ctx, http.MethodPost, "/v1/"+verb+"/"+component)
	return err
}

// Status lists the components.
func (c *Client) Status(ctx context.Context) ([]supervisor.State, error) {
	body, err := c.call(ctx, http.MethodGet, "/v1/status")
	if err != nil {
		return nil, err
	}
	var states []supervisor.State
	if err := json.Unmarshal(body, &states); err != nil {
		return nil, fmt.Errorf("decode status: %w", err)
	}
	return states, nil
}

func (c *Client) call(ctx context.Context, method, path string) (body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://cluster"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make control request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster's control: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if body, err = io.ReadAll(response.Body); err != nil {
		return nil, fmt.Errorf("read control answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}
