// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/podresources"
)

// Registration checks that an instance of the driver serves kubelet.
type Registration struct {
	KubeletRoot string
	Driver      string
	// MetricsAddress is the driver's host:port of /readyz, empty for none.
	MetricsAddress string
}

const remedyLog = "see why the driver does not run: kubectl -n tranche-system logs ds/tranche-node"

// Examine implements Examiner.
func (r Registration) Examine(ctx context.Context) []Finding {
	pattern := filepath.Join(r.KubeletRoot, "plugins_registry", r.Driver+"*-reg.sock")
	sockets, err := filepath.Glob(pattern)
	if err != nil || len(sockets) == 0 {
		return one(Problem, "no driver is there: no socket "+pattern, remedyLog)
	}
	var found []Finding
	answered := false
	for _, socket := range sockets {
		endpoint, err := r.ask(ctx, socket)
		if err != nil {
			found = append(found, Finding{Level: Warning, Seen: err.Error(), Remedy: "nothing, if the pod it belonged to was killed: the driver removes such sockets when it starts"})
			continue
		}
		answered = true
		found = append(found, Finding{Level: OK, Seen: "a driver answers at " + endpoint})
	}
	if !answered {
		return append(found, Finding{Level: Problem, Seen: "no driver answers in " + filepath.Dir(pattern), Remedy: remedyLog})
	}
	return append(found, r.ready(ctx))
}

// ask is what kubelet asks first, and a call at the socket that it would use then.
func (r Registration) ask(ctx context.Context, socket string) (endpoint string, err error) {
	conn, err := dial(socket)
	if err != nil {
		return "", fmt.Errorf("ask driver at %s: %w", socket, err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	info, err := registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return "", fmt.Errorf("ask driver at %s: %w", socket, err)
	}
	if info.GetName() != r.Driver {
		return "", fmt.Errorf("ask driver at %s: it is %q", socket, info.GetName())
	}
	var dialer net.Dialer
	probe, err := dialer.DialContext(ctx, "unix", info.GetEndpoint())
	if err != nil {
		return "", fmt.Errorf("call driver as kubelet would: %w", err)
	}
	_ = probe.Close()
	return info.GetEndpoint(), nil
}

// ready asks the driver whether kubelet has registered it, which nobody else
// can tell.
func (r Registration) ready(ctx context.Context) Finding {
	host, port, err := net.SplitHostPort(r.MetricsAddress)
	if err != nil {
		return Finding{Level: Skipped, Seen: "whether kubelet has registered it is not told: the driver has no metrics address"}
	}
	if host == "" {
		host = "127.0.0.1"
	}
	url := "http://" + net.JoinHostPort(host, port) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return Finding{Level: Skipped, Seen: fmt.Sprintf("whether kubelet has registered it cannot be asked: %v", err)}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return Finding{Level: Skipped, Seen: fmt.Sprintf("whether kubelet has registered it is only told in the driver's pod: %v", err)}
	}
	defer answer.Body.Close()                                   //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // a line
	if err == nil && answer.StatusCode == http.StatusOK {
		return Finding{Level: OK, Seen: "it is registered with kubelet, and its cards are published"}
	}
	return Finding{
		Level: Problem, Seen: "the driver is not ready: " + strings.TrimSpace(string(body)),
		Remedy: "wait a minute after its start; then see its log, and kubelet's for " + r.Driver,
	}
}

// OtherPlugins checks that no other device plugin serves a card of ours, which
// kubelet tells at its pod-resources socket.
type OtherPlugins struct {
	KubeletRoot string
	Cards       card.Lister
}

// Examine implements Examiner.
func (o OtherPlugins) Examine(ctx context.Context) []Finding {
	socket := podresources.SocketIn(o.KubeletRoot)
	devices, err := podresources.New(socket).Allocatable(ctx)
	if errors.Is(err, podresources.ErrUnavailable) {
		return one(Problem, err.Error(), "mount "+filepath.Dir(socket)+" of the node here; without it, cards that another plugin serves are handed out twice")
	}
	if err != nil {
		return one(Warning, err.Error(), "try again; see kubelet's log")
	}
	cards, err := o.Cards.Cards(ctx)
	if err != nil {
		return one(Skipped, "kubelet answers at "+socket+"; whether another plugin serves a card is unknown, for cards cannot be listed", "")
	}
	var found []Finding
	for _, c := range cards {
		if resource, served := servedBy(c, devices); served {
			found = append(found, Finding{
				Level: Problem, Seen: fmt.Sprintf("card %s is served by another device plugin, as %s, and therefore not published", c.UUID, resource),
				Remedy: "remove that plugin from this node, or keep tranche-node off it",
			})
		}
	}
	if found == nil {
		return one(OK, "kubelet answers at "+socket+"; no other plugin serves a card", "")
	}
	return found
}

// servedBy finds the resource under which a device plugin serves the card: it
// names devices by the card's UUID, with something behind it for replicas.
func servedBy(c card.Card, devices map[string][]string) (resource string, served bool) {
	if c.UUID == "" {
		return "", false
	}
	for _, resource := range slices.Sorted(maps.Keys(devices)) {
		for _, id := range devices[resource] {
			if strings.HasPrefix(id, string(c.UUID)) {
				return resource, true
			}
		}
	}
	return "", false
}
