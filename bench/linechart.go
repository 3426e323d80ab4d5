package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// lineChart has a line for each contestant: a metric, over a logarithmic axis.
type lineChart struct {
	title  string
	across string // what the axis counts
	up     string // the metric
	xs     []float64
	lines  []line
}

// line is the medians of one contestant.
type line struct {
	label  string
	points []point
}

type point struct{ x, y float64 }

// lineChart draws the first metric of each table over the table's x. It rounds the medians as the tables show them, so that
// the chart can be drawn from those.
func (g *measuredGroup) lineChart() *lineChart {
	c := &lineChart{title: g.title, across: g.across}
	for i := range g.tables {
		t := &g.tables[i]
		c.xs = append(c.xs, t.x)
		c.up = t.drawn[0].head
		for j := range t.rows {
			at := slices.IndexFunc(c.lines, func(l line) bool { return l.label == t.rows[j].name })
			if at < 0 {
				at = len(c.lines)
				c.lines = append(c.lines, line{label: t.rows[j].name})
			}
			c.lines[at].points = append(c.lines[at].points, point{t.x, math.Round(t.rows[j].spread(t.drawn[0]).median)})
		}
	}
	return c
}

// The measures of a line chart, in pixels.
const (
	linesWidth  = 880
	linesHeight = 320
	linesLeft   = 72 // the scale is left of this
	linesRight  = 596
	linesTop    = 64
	linesBottom = 270
	labelPitch  = 16 // of the labels right of the lines
)

// linesStyle suits a light page and a dark one. The first line is this library's; from the fifth on, lines are dashed.
const linesStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.grid { stroke: #d1d9e0; fill: none }
.line { fill: none; stroke: #6e7781; stroke-width: 2 }
.dot { fill: #6e7781 }
.l0 { stroke: #0969da; stroke-width: 3 } .d0 { fill: #0969da }
.l1 { stroke: #bc4c00 } .d1 { fill: #bc4c00 }
.l2 { stroke: #1a7f37 } .d2 { fill: #1a7f37 }
.l3 { stroke: #8250df } .d3 { fill: #8250df }
.l4 { stroke-dasharray: 7 4 }
.l5 { stroke-dasharray: 2 3 }
.l6 { stroke-dasharray: 9 3 2 3 }
.first { font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.grid { stroke: #3d444d }
.line { stroke: #9198a1 }
.dot { fill: #9198a1 }
.l0 { stroke: #4493f8 } .d0 { fill: #4493f8 }
.l1 { stroke: #f0883e } .d1 { fill: #f0883e }
.l2 { stroke: #3fb950 } .d2 { fill: #3fb950 }
.l3 { stroke: #ab7df8 } .d3 { fill: #ab7df8 }
}
</style>
`

// svg returns the chart as a document.
func (c *lineChart) svg() string {
	var out strings.Builder
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n",
		linesWidth, linesHeight, linesWidth, linesHeight)
	fmt.Fprintf(&out, "<title>%s</title>\n%s", escape(c.title), linesStyle)
	fmt.Fprintf(&out, "<text class=\"title\" x=\"8\" y=\"24\">%s</text>\n", escape(c.title))
	fmt.Fprintf(&out, "<text x=\"8\" y=\"48\">%s</text>\n", escape(c.up))
	top := c.top()
	for value := 0.0; value <= top; value += c.step() {
		y := c.y(value)
		fmt.Fprintf(&out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", linesLeft, y, linesRight)
		fmt.Fprintf(&out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", linesLeft-8, y+4, escape(whole(value)))
	}
	for _, x := range c.xs {
		fmt.Fprintf(&out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", c.x(x), linesBottom+20, escape(whole(x)))
	}
	fmt.Fprintf(&out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
		(linesLeft+linesRight)/2, linesBottom+42, escape(c.across))
	for i, l := range slices.Backward(c.lines) { // this library's line lies above the others
		var path strings.Builder
		for j, p := range l.points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], c.x(p.x), c.y(p.y))
		}
		fmt.Fprintf(&out, "<path class=\"line l%d\" d=\"%s\"/>\n", i, path.String())
		for _, p := range l.points {
			fmt.Fprintf(&out, "<circle class=\"dot d%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", i, c.x(p.x), c.y(p.y))
		}
	}
	c.drawLabels(&out)
	out.WriteString("</svg>\n")
	return out.String()
}

// drawLabels writes the name of each line beside its end, and moves names apart that would overlap.
func (c *lineChart) drawLabels(out *strings.Builder) {
	order := make([]int, len(c.lines))
	for i := range order {
		order[i] = i
	}
	end := func(i int) point { return c.lines[i].points[len(c.lines[i].points)-1] }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(end(a).y, end(b).y) })
	lowest := float64(linesBottom)
	for _, i := range order {
		y := min(c.y(end(i).y), lowest)
		lowest = y - labelPitch
		class := ""
		if i == 0 {
			class = " class=\"first\""
		}
		fmt.Fprintf(out, "<path class=\"line l%d\" d=\"M%d %.1fh18\"/>\n", i, linesRight+8, y)
		fmt.Fprintf(out, "<text%s x=\"%d\" y=\"%.1f\">%s</text>\n", class, linesRight+32, y+4, escape(c.lines[i].label))
	}
}

// x returns where a value stands on the logarithmic axis.
func (c *lineChart) x(value float64) float64 {
	first, last := math.Log(slices.Min(c.xs)), math.Log(slices.Max(c.xs))
	if first == last {
		return (linesLeft + linesRight) / 2
	}
	return linesLeft + 16 + (linesRight-linesLeft-32)*(math.Log(value)-first)/(last-first)
}

// y returns how far down a value of the metric stands.
func (c *lineChart) y(value float64) float64 {
	return linesBottom - (linesBottom-linesTop)*value/c.top()
}

// step returns the distance of the grid's lines: 1, 2 or 5 and zeros, so that there are about five.
func (c *lineChart) step() float64 {
	highest := c.highest()
	unit := math.Pow(10, math.Floor(math.Log10(highest/5)))
	for _, digit := range []float64{1, 2, 5} {
		if highest/5 <= digit*unit {
			return digit * unit
		}
	}
	return 10 * unit
}

// top returns the end of the scale.
func (c *lineChart) top() float64 {
	step := c.step()
	return step * math.Ceil(c.highest()/step)
}

// highest returns the highest value, or 1 if that is less.
func (c *lineChart) highest() float64 {
	highest := 1.0
	for _, l := range c.lines {
		for _, p := range l.points {
			highest = max(highest, p.y)
		}
	}
	return highest
}
