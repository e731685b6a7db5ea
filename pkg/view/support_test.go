// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
)

func reverse[T any](in []T) []T {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}

// resourceQuantity parses a quantity, empty being none.
func resourceQuantity(t *testing.T, s string) resource.Quantity {
	t.Helper()
	if s == "" {
		return resource.Quantity{}
	}
	q, err := resource.ParseQuantity(s)
	require.NoError(t, err)
	return q
}
