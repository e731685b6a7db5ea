// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func token(payload string) string {
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".signature"
}

func TestNodeUIDOf(t *testing.T) {
	t.Parallel()
	const bound = `{"sub":"system:serviceaccount:tranche-system:tranche-node","kubernetes.io":{"namespace":"tranche-system","node":{"name":"node1","uid":"u-1"},"pod":{"name":"p","uid":"u-2"}}}`
	for name, tc := range map[string]struct {
		token string
		want  types.UID
	}{
		"a token bound to this node":          {token(bound), "u-1"},
		"a token bound to another node":       {token(`{"kubernetes.io":{"node":{"name":"node2","uid":"u-1"}}}`), ""},
		"a token that is bound to no node":    {token(`{"kubernetes.io":{"namespace":"n"}}`), ""},
		"a token of something else":           {token(`{"iss":"x"}`), ""},
		"a payload that is not JSON":          {token(`nonsense`), ""},
		"a payload that is not encoded right": {"a.%%%.c", ""},
		"a token that is not a JWT":           {"abcdef.123456", ""},
		"no token":                            {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, nodeUIDOf(tc.token, "node1"))
		})
	}
}

func TestTheProcessEndsWhenItsNodeWasRegisteredAnew(t *testing.T) {
	t.Parallel()
	uids := []types.UID{"u-1", "", "u-1", "u-2"} // the token cannot be read for a moment
	now := func() types.UID { uid := uids[0]; uids = uids[1:]; return uid }
	require.ErrorIs(t, watchNode(t.Context(), clients{nodeUID: "u-1", nodeUIDNow: now}, time.Millisecond), errNodeReplaced)
	require.Empty(t, uids)
}

func TestANodeWhoseUIDIsNotKnownOrGivenIsNotWatched(t *testing.T) {
	t.Parallel()
	require.NoError(t, watchNode(t.Context(), clients{nodeUID: "u-1"}, time.Nanosecond))
	require.NoError(t, watchNode(t.Context(), clients{nodeUIDNow: func() types.UID { return "u-2" }}, time.Nanosecond))
}

func FuzzNodeUIDOf(f *testing.F) {
	f.Add(token(`{"kubernetes.io":{"node":{"name":"node1","uid":"u-1"}}}`), "node1")
	f.Add("a.b.c", "")
	f.Fuzz(func(t *testing.T, raw, node string) {
		if uid := nodeUIDOf(raw, node); uid != "" {
			require.NotEmpty(t, raw)
		}
	})
}
