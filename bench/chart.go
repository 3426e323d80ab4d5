package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// chart is panels of horizontal bars, one below the other. Each panel has its own scale.
type chart struct {
	title  string
	panels []panel
}

// panel is a group of bars with a common scale, from 0 to the longest whisker.
type panel struct {
	title string
	bars  []bar
}

// bar is a median with a whisker from quartile to quartile.
type bar struct {
	label string
	text  string // the value, in words
	spread
}

// svg returns the chart of the group, as a document.
func (g *measuredGroup) svg() string {
	if g.across != "" {
		return g.lineChart().svg()
	}
	return g.chart().svg()
}

// chart draws each table.
func (g *measuredGroup) chart() *chart {
	c := &chart{title: g.title}
	for i := range g.tables {
		t := &g.tables[i]
		for _, m := range t.drawn {
			p := panel{title: t.title + ", " + m.head}
			for j := range t.rows {
				s := t.rows[j].spread(m)
				p.bars = append(p.bars, bar{label: t.rows[j].name, text: m.format(s.median), spread: s})
			}
			c.panels = append(c.panels, p)
		}
	}
	return c
}

// The measures of a chart, in pixels.
const (
	chartWidth  = 760
	barsLeft    = 220 // the labels are left of this
	barsWidth   = 440 // the values are right of the bars
	titleHeight = 36
	panelHeight = 34 // of its title
	barPitch    = 24
	barHeight   = 14
	panelGap    = 10
)

// svgStyle suits a light page and a dark one. The chart has no background.
const svgStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.panel { font-weight: 600 }
.bar { fill: #8c959f }
.this { fill: #0969da }
.whisker { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.bar { fill: #656c76 }
.this { fill: #4493f8 }
.whisker { stroke: #e6edf3 }
}
</style>
`

// svg returns the chart as a document.
func (c *chart) svg() string {
	height := titleHeight
	for _, p := range c.panels {
		height += panelHeight + len(p.bars)*barPitch + panelGap
	}
	var out strings.Builder
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&out, "<title>%s</title>\n%s", escape(c.title), svgStyle)
	fmt.Fprintf(&out, "<text class=\"title\" x=\"8\" y=\"24\">%s</text>\n", escape(c.title))
	top := titleHeight
	for i := range c.panels {
		top = c.panels[i].draw(&out, top)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// draw writes the panel with its upper edge at top, and returns where its lower edge is.
func (p *panel) draw(out *strings.Builder, top int) int {
	fmt.Fprintf(out, "<text class=\"panel\" x=\"8\" y=\"%d\">%s</text>\n", top+22, escape(p.title))
	top += panelHeight
	longest := 0.0
	for _, b := range p.bars {
		longest = max(longest, b.high)
	}
	scale := 0.0
	if longest > 0 {
		scale = barsWidth / longest
	}
	for _, b := range p.bars {
		class := "bar"
		if strings.HasPrefix(b.label, thisLibrary) {
			class = "bar this"
		}
		middle := top + barPitch/2
		low, high := barsLeft+b.low*scale, barsLeft+b.high*scale
		fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", barsLeft-8, middle+4, escape(b.label))
		fmt.Fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n",
			class, barsLeft, middle-barHeight/2, b.median*scale, barHeight)
		fmt.Fprintf(out, "<path class=\"whisker\" d=\"M%.1f %dH%.1fM%.1f %dv8M%.1f %dv8\"/>\n",
			low, middle, high, low, middle-4, high, middle-4)
		fmt.Fprintf(out, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", high+8, middle+4, escape(b.text))
		top += barPitch
	}
	return top + panelGap
}

// escape makes text safe within an element.
func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a strings.Builder takes everything
	return out.String()
}
