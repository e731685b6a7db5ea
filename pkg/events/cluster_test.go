// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tranche-dra/tranche/pkg/events"
	"github.com/tranche-dra/tranche/pkg/share"
)

const patient = 30 * time.Second // a bound for tests that would hang, never a measure

// sent is one request of the API server.
type sent struct {
	method, path string
	event        corev1.Event
}

// server is an API server that takes events.
func server(t *testing.T) (*rest.Config, <-chan sent) {
	t.Helper()
	requests := make(chan sent, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := sent{method: r.Method, path: r.URL.Path}
		if err == nil {
			err = json.Unmarshal(body, &request.event)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		requests <- request
		answer := request.event
		answer.APIVersion, answer.Kind = "v1", "Event"
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}, requests
}

func receive(t *testing.T, requests <-chan sent) sent {
	t.Helper()
	select {
	case r := <-requests:
		return r
	case <-time.After(patient):
		require.Fail(t, "no request came")
		return sent{}
	}
}

func TestEventsReachTheObjectsThatTheyAreAbout(t *testing.T) {
	t.Parallel()
	config, requests := server(t)
	c, err := events.NewCluster(t.Context(), config, "tranche-arbiter", "node1")
	require.NoError(t, err)
	defer c.Close()

	c.Claim(share.Claim{UID: "uid", Namespace: "team-a", Name: "notebook"}, "MemoryOverLimit", "too much")
	r := receive(t, requests)
	require.Equal(t, "POST /api/v1/namespaces/team-a/events", r.method+" "+r.path)
	require.Equal(t, corev1.ObjectReference{
		APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: "team-a", Name: "notebook", UID: "uid",
	}, r.event.InvolvedObject)
	require.Equal(t, []string{"Warning", "MemoryOverLimit", "too much"}, []string{r.event.Type, r.event.Reason, r.event.Message})
	require.Equal(t, corev1.EventSource{Component: "tranche-arbiter", Host: "node1"}, r.event.Source)

	c.Claim(share.Claim{UID: "uid", Namespace: "team-a", Name: "notebook"}, "MemoryOverLimit", "too much")
	r = receive(t, requests)
	require.Equal(t, http.MethodPatch, r.method, "the same again is counted")
	require.EqualValues(t, 2, r.event.Count)

	c.Node("UnknownProcess", "whose is it?")
	r = receive(t, requests)
	require.Equal(t, "POST /api/v1/namespaces/default/events", r.method+" "+r.path)
	require.Equal(t, "Node node1", r.event.InvolvedObject.Kind+" "+r.event.InvolvedObject.Name)
}

func TestALongMessageIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	config, requests := server(t)
	c, err := events.NewCluster(t.Context(), config, "tranche-arbiter", "node1")
	require.NoError(t, err)
	defer c.Close()
	c.Node("Long", strings.Repeat("ü", 600)+"\xff")
	message := receive(t, requests).event.Message
	require.LessOrEqual(t, len(message), 1024)
	require.True(t, utf8.ValidString(message))
	require.True(t, strings.HasSuffix(message, "ü..."), message)
}
