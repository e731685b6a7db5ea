// SPDX-License-Identifier: Apache-2.0

// Package chart draws how much of a cluster was allocated against how much had
// been asked for, one line for each policy. It is apart from package replay so
// that who does not draw does not carry the fonts.
package chart

import (
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/tranche-dra/tranche/pkg/replay"
)

// Formats that Write knows, as the ends of file names.
func Formats() []string { return []string{"svg", "png"} }

const width, height = 16 * vg.Centimeter, 12 * vg.Centimeter

// colours that people who see few colours can tell apart (Okabe and Ito).
var colours = []color.RGBA{
	{0xD5, 0x5E, 0x00, 0xFF},
	{0x00, 0x72, 0xB2, 0xFF},
	{0x00, 0x9E, 0x73, 0xFF},
	{0xCC, 0x79, 0xA7, 0xFF},
	{0xE6, 0x9F, 0x00, 0xFF},
	{0x56, 0xB4, 0xE9, 0xFF},
	{0x00, 0x00, 0x00, 0xFF},
}

// Write draws the report in the format.
func Write(w io.Writer, format string, report replay.Report) error {
	if !slices.Contains(Formats(), format) {
		return fmt.Errorf("draw chart: format %q is unknown: %s are right", format, strings.Join(Formats(), " and "))
	}
	p := plot.New()
	p.Title.Text = fmt.Sprintf("nodes: %d, cards: %d, replays: %d", report.Nodes, report.Cards, len(report.Seeds))
	p.X.Label.Text = "asked for, % of all compute"
	p.Y.Label.Text = "allocated, % of all compute"
	p.Legend.Top, p.Legend.Left = false, false
	p.Add(plotter.NewGrid())
	for i := range report.Policies {
		s := &report.Policies[i]
		points := make(plotter.XYs, 0, len(s.Curve)+1)
		points = append(points, plotter.XY{})
		for _, at := range s.Curve {
			points = append(points, plotter.XY{X: 100 * at.Arrived, Y: 100 * at.Allocated})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("draw %s: %w", s.Policy, err)
		}
		line.Color = colours[i%len(colours)]
		line.Width = vg.Points(1.2)
		if i >= len(colours) {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s (%.2f %%)", s.Policy, 100*s.AtEnd), line)
	}
	picture, err := p.WriterTo(width, height, format)
	if err != nil {
		return fmt.Errorf("draw chart: %w", err)
	}
	if _, err := picture.WriteTo(w); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}
