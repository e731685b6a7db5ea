// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// config reads the fields of a ShareConfig, given without apiVersion and kind.
func config(t *testing.T, fields string) *v1alpha1.ShareConfig {
	t.Helper()
	c, err := v1alpha1.Decode([]byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig"` + fields + `}`))
	require.NoError(t, err)
	return c
}

func TestDecode(t *testing.T) {
	t.Parallel()
	const head = `"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig"`
	for name, tc := range map[string]struct{ raw, err string }{
		"an empty config is fine":                  {`{` + head + `}`, ""},
		"all fields":                               {`{` + head + `,"policy":"native-burst-share","class":"online","burst":{"ceiling":50}}`, ""},
		"null is unset":                            {`{` + head + `,"policy":null,"burst":null}`, ""},
		"an unknown field":                         {`{` + head + `,"polcy":"fixed-share"}`, `unknown field "polcy"`},
		"a field in another case":                  {`{` + head + `,"Policy":"fixed-share"}`, `unknown field "Policy"`},
		"a nested field in another case":           {`{` + head + `,"burst":{"Ceiling":5}}`, `unknown field "burst.Ceiling"`},
		"a field given twice":                      {`{` + head + `,"class":"online","class":"offline"}`, `duplicate field "class"`},
		"a nested field given twice":               {`{` + head + `,"burst":{"ceiling":5,"ceiling":6}}`, `duplicate field "burst.ceiling"`},
		"a number where a text belongs":            {`{` + head + `,"policy":20}`, "ShareConfig.policy"},
		"a text where a number belongs":            {`{` + head + `,"burst":{"ceiling":"50"}}`, "Burst.burst.ceiling"},
		"a fraction of a percent":                  {`{` + head + `,"burst":{"ceiling":50.5}}`, "Burst.burst.ceiling"},
		"metadata does not belong here":            {`{` + head + `,"metadata":{"name":"x"}}`, `unknown field "metadata"`},
		"another kind of ours":                     {`{"apiVersion":"tranche.dev/v1alpha1","kind":"NodeConfig"}`, `found apiVersion "tranche.dev/v1alpha1", kind "NodeConfig", want apiVersion "tranche.dev/v1alpha1", kind "ShareConfig"`},
		"a newer version":                          {`{"apiVersion":"tranche.dev/v2","kind":"ShareConfig"}`, `found apiVersion "tranche.dev/v2"`},
		"another group":                            {`{"apiVersion":"gpu.example.com/v1","kind":"GpuConfig"}`, `kind "GpuConfig"`},
		"no kind":                                  {`{"apiVersion":"tranche.dev/v1alpha1"}`, "kind is not known"},
		"no version":                               {`{"kind":"ShareConfig"}`, "kind is not known"},
		"neither":                                  {`{}`, "apiVersion and kind are required"},
		"nothing":                                  {"", "exactly one document is expected"},
		"white space":                              {" \n", "exactly one document is expected"},
		"null":                                     {"null", "kind is not known"},
		"a list":                                   {"[]", "decode ShareConfig"},
		"something behind the document":            {`{` + head + `}{}`, "decode ShareConfig"},
		"a document that is cut off":               {`{` + head, "decode ShareConfig"},
		"YAML, which the API server never sends":   {"apiVersion: tranche.dev/v1alpha1\nkind: ShareConfig\n", "decode ShareConfig"},
		"a number that no integer can hold":        {`{` + head + `,"burst":{"ceiling":1e30}}`, "Burst.burst.ceiling"},
		"kind in another case is an unknown field": {`{` + head + `,"Kind":"ShareConfig"}`, `unknown field "Kind"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := v1alpha1.Decode([]byte(tc.raw))
			if tc.err == "" {
				require.NoError(t, err)
				require.NotNil(t, c)
				return
			}
			require.ErrorContains(t, err, tc.err)
			require.Nil(t, c, "an object beside an error would be used by somebody")
		})
	}
	_, err := v1alpha1.Decode([]byte(`{"apiVersion":"tranche.dev/v2","kind":"ShareConfig"}`))
	require.ErrorIs(t, err, v1alpha1.ErrUnknownKind)
	_, err = v1alpha1.Decode(nil)
	require.ErrorIs(t, err, v1alpha1.ErrNotOneDocument)
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		layers []string
		want   string
	}{
		"no layer sets nothing":                      {nil, ``},
		"one layer is itself":                        {[]string{`,"policy":"fixed-share","burst":{"ceiling":7}`}, `,"policy":"fixed-share","burst":{"ceiling":7}`},
		"the later one wins":                         {[]string{`,"class":"online"`, `,"class":"offline"`}, `,"class":"offline"`},
		"a later one that is silent changes nothing": {[]string{`,"policy":"best-effort","class":"online","burst":{"ceiling":9}`, ``}, `,"policy":"best-effort","class":"online","burst":{"ceiling":9}`},
		"fields come from different layers":          {[]string{`,"policy":"best-effort"`, `,"class":"offline"`}, `,"policy":"best-effort","class":"offline"`},
		"an empty burst keeps the ceiling":           {[]string{`,"burst":{"ceiling":9}`, `,"burst":{}`}, `,"burst":{"ceiling":9}`},
		"a ceiling of zero is set, not absent":       {[]string{`,"burst":{"ceiling":9}`, `,"burst":{"ceiling":0}`}, `,"burst":{"ceiling":0}`},
		"none is set, not absent":                    {[]string{`,"class":"online"`, `,"class":"none"`}, `,"class":"none"`},
		"three layers":                               {[]string{`,"policy":"best-effort"`, `,"policy":"fixed-share"`, `,"class":"none"`}, `,"policy":"fixed-share","class":"none"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var layers, before []*v1alpha1.ShareConfig
			for _, l := range tc.layers {
				layers = append(layers, config(t, l), nil)
				before = append(before, config(t, l), nil)
			}
			merged := v1alpha1.Merge(layers...)
			require.Equal(t, config(t, tc.want), merged)
			v1alpha1.SetDefaults(merged, share.Fixed)
			if merged.Burst != nil && merged.Burst.Ceiling != nil {
				*merged.Burst.Ceiling = 1
			}
			*merged.Policy = "changed"
			require.Equal(t, before, layers, "the result shares memory with a layer")
		})
	}
}

func TestSetDefaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node        share.Policy
		given, want string
	}{
		"the node's policy":                              {share.Fixed, ``, `,"policy":"fixed-share","class":"none"`},
		"a policy that bursts gets the whole card":       {share.NativeBurst, ``, `,"policy":"native-burst-share","class":"none","burst":{"ceiling":100}`},
		"a policy of its own":                            {share.Fixed, `,"policy":"best-effort"`, `,"policy":"best-effort","class":"none"`},
		"what is set stays":                              {share.Fixed, `,"policy":"guaranteed-burst-share","class":"offline","burst":{"ceiling":40}`, `,"policy":"guaranteed-burst-share","class":"offline","burst":{"ceiling":40}`},
		"a zero ceiling stays, to be refused":            {share.GuaranteedBurst, `,"burst":{"ceiling":0}`, `,"policy":"guaranteed-burst-share","class":"none","burst":{"ceiling":0}`},
		"an empty burst is filled":                       {share.GuaranteedBurst, `,"burst":{}`, `,"policy":"guaranteed-burst-share","class":"none","burst":{"ceiling":100}`},
		"an empty policy text stays, to be refused":      {share.Fixed, `,"policy":""`, `,"policy":"","class":"none"`},
		"a ceiling under a fixed share stays for errors": {share.Fixed, `,"burst":{"ceiling":40}`, `,"policy":"fixed-share","class":"none","burst":{"ceiling":40}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t, tc.given)
			v1alpha1.SetDefaults(c, tc.node)
			require.Equal(t, config(t, tc.want), c)
			v1alpha1.SetDefaults(c, share.BestEffort)
			require.Equal(t, config(t, tc.want), c, "defaults are set once")
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ fields, err string }{
		"nothing set":                   {``, ""},
		"every field set":               {`,"policy":"guaranteed-burst-share","class":"online","burst":{"ceiling":100}`, ""},
		"a ceiling without a policy":    {`,"burst":{"ceiling":1}`, ""},
		"an unknown policy":             {`,"policy":"fixed"`, `parameters.policy: Unsupported value: "fixed": supported values: "best-effort", "fixed-share", "guaranteed-burst-share", "native-burst-share"`},
		"an empty policy is not unset":  {`,"policy":""`, `parameters.policy: Unsupported value: ""`},
		"an unknown class":              {`,"class":"high"`, `parameters.class: Unsupported value: "high": supported values: "none", "online", "offline"`},
		"a policy in another case":      {`,"policy":"Fixed-Share"`, `parameters.policy: Unsupported value`},
		"a ceiling of zero":             {`,"burst":{"ceiling":0}`, `parameters.burst.ceiling: Invalid value: 0: must be 1 to 100, in percent of the card`},
		"a ceiling of more than a card": {`,"burst":{"ceiling":101}`, `parameters.burst.ceiling: Invalid value: 101`},
		"a negative ceiling":            {`,"burst":{"ceiling":-1}`, `parameters.burst.ceiling: Invalid value: -1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireErrors(t, config(t, tc.fields).Validate(field.NewPath("parameters")), tc.err)
		})
	}
	require.Len(t, config(t, `,"policy":"x","class":"y","burst":{"ceiling":0}`).Validate(nil), 3, "all errors are told at once")
}

func TestValidateMerged(t *testing.T) {
	t.Parallel()
	cores := func(n card.Percent) share.Limits { return share.Limits{Cores: n, Memory: 1024} }
	offline := func(n card.Percent) share.Limits { return share.Limits{OfflineCores: n, Memory: 1024} }
	for name, tc := range map[string]struct {
		fields string
		limits share.Limits
		err    string
	}{
		"a fixed share":                                  {`,"policy":"fixed-share"`, cores(20), ""},
		"a fixed share of nothing":                       {`,"policy":"fixed-share"`, cores(0), "policy: Invalid value: \"fixed-share\": at most 0 % of the compute would never run anything: ask for cores of at least 1, or for policy best-effort"},
		"memory alone, compute as it comes":              {`,"policy":"best-effort"`, cores(0), ""},
		"no guarantee, but idle compute":                 {`,"policy":"guaranteed-burst-share"`, cores(0), ""},
		"a ceiling above the guarantee":                  {`,"policy":"guaranteed-burst-share","burst":{"ceiling":50}`, cores(20), ""},
		"a ceiling equal to the guarantee":               {`,"policy":"guaranteed-burst-share","burst":{"ceiling":20}`, cores(20), ""},
		"a ceiling below the guarantee":                  {`,"policy":"guaranteed-burst-share","burst":{"ceiling":19}`, cores(20), "burst.ceiling: Invalid value: 19: must not be below the guaranteed cores of 20"},
		"a weight guarantees nothing":                    {`,"policy":"native-burst-share","burst":{"ceiling":10}`, cores(20), ""},
		"a ceiling for a fixed share":                    {`,"policy":"fixed-share","burst":{"ceiling":50}`, cores(20), "burst.ceiling: Invalid value: 50: policy fixed-share takes no ceiling, only guaranteed-burst-share and native-burst-share do"},
		"a ceiling for best effort":                      {`,"policy":"best-effort","burst":{"ceiling":50}`, cores(20), "policy best-effort takes no ceiling"},
		"a ceiling where the node's default takes none":  {`,"burst":{"ceiling":50}`, cores(20), "policy fixed-share takes no ceiling"},
		"an offline share":                               {`,"class":"offline"`, offline(20), ""},
		"an offline share of nothing":                    {`,"class":"offline"`, offline(0), "ask for offlineCores of at least 1"},
		"an offline share of memory only":                {`,"class":"offline","policy":"best-effort"`, offline(0), ""},
		"an offline share that holds cores":              {`,"class":"offline"`, cores(20), `class: Invalid value: "offline": the share holds 20 of cores: an offline share asks for cores: 0 and offlineCores: N`},
		"an online share that holds offline compute":     {`,"class":"online","policy":"best-effort"`, offline(20), `class: Invalid value: "online": the share holds 20 of offlineCores: only class offline takes them, others ask for cores`},
		"a share without class that holds it":            {`,"policy":"best-effort"`, offline(20), `class: Invalid value: "none"`},
		"an offline ceiling below the offline guarantee": {`,"class":"offline","policy":"guaranteed-burst-share","burst":{"ceiling":19}`, offline(20), "guaranteed offlineCores of 20"},
		"a whole card":                                   {``, cores(100), ""},
		"what is wrong by itself is wrong here":          {`,"policy":"fixed"`, cores(20), "policy: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t, tc.fields)
			v1alpha1.SetDefaults(c, share.Fixed)
			requireErrors(t, c.ValidateMerged(tc.limits, nil), tc.err)
		})
	}
	errs := v1alpha1.NewShareConfig().ValidateMerged(cores(1), nil)
	requireErrors(t, errs, "defaults must be set first")
}

func TestBurstCeiling(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 100, config(t, ``).BurstCeiling())
	require.EqualValues(t, 100, config(t, `,"burst":{}`).BurstCeiling())
	require.EqualValues(t, 35, config(t, `,"burst":{"ceiling":35}`).BurstCeiling())
}

// requireErrors wants no error where the text is empty, else one that has it.
func requireErrors(t *testing.T, errs field.ErrorList, text string) {
	t.Helper()
	if text == "" {
		require.Empty(t, errs)
		return
	}
	require.Error(t, errs.ToAggregate())
	require.ErrorContains(t, errs.ToAggregate(), text)
}

func FuzzDecode(f *testing.F) {
	const head = `{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig"`
	for _, seed := range []string{
		head + `}`,
		head + `,"policy":"fixed-share","class":"offline","burst":{"ceiling":70}}`,
		head + `,"policy":"","burst":{}}`,
		head + `,"burst":{"ceiling":-9223372036854775808}}`,
		`{"kind":"ShareConfig"}`, `null`, `[]`, `"`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := v1alpha1.Decode(raw)
		if err != nil {
			require.Nil(t, c)
			return
		}
		encoded, err := json.Marshal(c)
		require.NoError(t, err)
		again, err := v1alpha1.Decode(encoded)
		require.NoError(t, err)
		require.Equal(t, c, again)
		require.Equal(t, c, v1alpha1.Merge(c), "a single layer is itself")
		require.Equal(t, c, v1alpha1.Merge(c, v1alpha1.NewShareConfig(), c))
		valid := len(c.Validate(nil)) == 0
		v1alpha1.SetDefaults(c, share.Fixed)
		require.Equal(t, valid, len(c.Validate(nil)) == 0, "defaults neither break nor mend")
		_ = c.ValidateMerged(share.Limits{Cores: 20}, nil)
	})
}
