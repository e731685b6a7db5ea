// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTarget(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		target Target
		value  float64
		met    bool
		text   string
	}{
		"at most is met below":              {AtMost(20), 19.9, true, "at most 20"},
		"at most is met at the limit":       {AtMost(20), 20, true, "at most 20"},
		"at most is missed above":           {AtMost(20), 20.1, false, "at most 20"},
		"at least is missed below":          {AtLeast(0.5), 0.4, false, "at least 0.5"},
		"at least is met at the limit":      {AtLeast(0.5), 0.5, true, "at least 0.5"},
		"at least is met above":             {AtLeast(0.5), 0.6, true, "at least 0.5"},
		"zero is a target":                  {AtMost(0), 1, false, "at most 0"},
		"without a target nothing is met":   {Target{}, 0, false, ""},
		"a negative target is a target too": {AtMost(-1), -2, true, "at most -1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.met, row.target.Met(row.value))
			require.Equal(t, row.text, row.target.String())
			require.Equal(t, row.text != "", row.target.Set())
		})
	}
}

func TestNumbersAreShortAndWholeOnesExact(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]float64{
		"20":        20,
		"7.123":     7.123456,
		"0.0001235": 0.00012346,
		"999.9":     999.94,
		"1000":      999.96,
		"0":         1.776e-14,
		"0.000012":  1.2e-5,
		"1235":      1234.5678,
		"123457":    123456.789,
		"-0.5":      -0.5,
		"-2000":     -2000.2,
	} {
		require.Equal(t, want, number(value), "%v", value)
	}
}
