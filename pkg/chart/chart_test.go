// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/chart"
	"github.com/tranche-dra/tranche/pkg/replay"
)

func report(policies int) replay.Report {
	r := replay.Report{Nodes: 2, Cards: 9, Seeds: []uint64{1}}
	for i := range policies {
		r.Policies = append(r.Policies, replay.Summary{
			Policy: "policy " + string(rune('a'+i)), AtEnd: 0.9,
			Curve: []replay.Point{{Arrived: 0.5, Allocated: 0.5}, {Arrived: 1, Allocated: 0.9}},
		})
	}
	return r
}

func TestSVGNamesThePolicies(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, chart.Write(&out, "svg", report(9)))
	text := ""
	for decoder := xml.NewDecoder(bytes.NewReader(out.Bytes())); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if data, is := token.(xml.CharData); is {
			text += string(data)
		}
	}
	for _, want := range []string{"policy a (90.00 %)", "policy i (90.00 %)", "nodes: 2, cards: 9, replays: 1", "asked for, % of all compute"} {
		require.Contains(t, text, want)
	}
	var again bytes.Buffer
	require.NoError(t, chart.Write(&again, "svg", report(9)))
	require.Equal(t, out.Bytes(), again.Bytes(), "the same report is drawn the same")
}

func TestPNG(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, chart.Write(&out, "png", report(2)))
	picture, err := png.Decode(&out)
	require.NoError(t, err)
	require.Greater(t, picture.Bounds().Dx(), 400)
}

func TestOtherFormatsAreRefused(t *testing.T) {
	t.Parallel()
	require.EqualError(t, chart.Write(io.Discard, "gif", report(1)), `draw chart: format "gif" is unknown: svg and png are right`)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

func TestAWriterThatFailsIsNotPassedOver(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, chart.Write(full{}, "svg", report(1)), "disk is full")
}
