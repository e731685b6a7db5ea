// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/placement"
)

func TestTrancheArgsAreDecodedStrictlyAndValidated(t *testing.T) {
	t.Parallel()
	const head = `{"apiVersion":"tranche.dev/v1alpha1","kind":"TrancheArgs"`
	for name, tc := range map[string]struct{ raw, want string }{
		"nothing but the kind":          {head + `}`, ""},
		"every field":                   {head + `,"nodePolicy":"binpack","cardPolicy":"fragmentation","filterTimeout":"0s","bindingTimeout":"1s"}`, ""},
		"no kind":                       {`{"nodePolicy":"binpack"}`, "kind is not known"},
		"another kind":                  {`{"apiVersion":"tranche.dev/v1alpha1","kind":"NodeConfig"}`, `want apiVersion "tranche.dev/v1alpha1", kind "TrancheArgs"`},
		"an unknown field":              {head + `,"cardpolicy":"spread"}`, `unknown field "cardpolicy"`},
		"a field twice":                 {head + `,"cardPolicy":"spread","cardPolicy":"spread"}`, `duplicate field "cardPolicy"`},
		"a policy that there is not":    {head + `,"cardPolicy":"tight"}`, `cardPolicy: Unsupported value: "tight": supported values: "binpack", "spread", "fragmentation"`},
		"a node policy in another case": {head + `,"nodePolicy":"Spread"}`, `nodePolicy: Unsupported value: "Spread"`},
		"a negative filter timeout":     {head + `,"filterTimeout":"-1s"}`, "filterTimeout: Invalid value: \"-1s\": must not be negative; 0s is for ever"},
		"a short binding timeout":       {head + `,"bindingTimeout":"10ms"}`, "bindingTimeout: Invalid value: \"10ms\": must be at least 1s"},
		"nothing":                       {``, "exactly one document is expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args, err := v1alpha1.DecodeTrancheArgs([]byte(tc.raw))
			if err == nil {
				v1alpha1.SetTrancheArgsDefaults(args)
				err = args.Validate(nil).ToAggregate()
			}
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestTrancheArgsDefaults(t *testing.T) {
	t.Parallel()
	args := v1alpha1.NewTrancheArgs()
	v1alpha1.SetTrancheArgsDefaults(args)
	want := v1alpha1.NewTrancheArgs()
	want.NodePolicy, want.CardPolicy = placement.Spread, placement.Binpack
	want.FilterTimeout, want.BindingTimeout = &metav1.Duration{Duration: 10 * time.Second}, &metav1.Duration{Duration: 10 * time.Minute}
	require.Equal(t, want, args)
	require.Empty(t, args.Validate(nil))
}

func TestPlacementOfAnnotations(t *testing.T) {
	t.Parallel()
	otherwise := placement.Policies{Node: placement.Spread, Card: placement.Binpack}
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        placement.Policies
		err         []string
	}{
		"none":        {nil, otherwise, nil},
		"of others":   {map[string]string{"example.com/card-policy": "spread"}, otherwise, nil},
		"of the card": {map[string]string{v1alpha1.AnnotationCardPolicy: "fragmentation"}, placement.Policies{Node: placement.Spread, Card: placement.Fragmentation}, nil},
		"of both": {
			map[string]string{v1alpha1.AnnotationCardPolicy: "spread", v1alpha1.AnnotationNodePolicy: "binpack"},
			placement.Policies{Node: placement.Binpack, Card: placement.Spread},
			nil,
		},
		"wrong ones": {
			map[string]string{v1alpha1.AnnotationCardPolicy: "", v1alpha1.AnnotationNodePolicy: "pack"},
			placement.Policies{},
			[]string{`metadata.annotations[tranche.dev/node-policy]: Unsupported value: "pack"`, `metadata.annotations[tranche.dev/card-policy]: Unsupported value: ""`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := v1alpha1.PlacementOfAnnotations(tc.annotations, otherwise)
			for _, want := range tc.err {
				require.ErrorContains(t, err, want)
			}
			if tc.err == nil {
				require.NoError(t, err)
				require.Equal(t, tc.want, got)
			}
		})
	}
}
