package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
)

// mark is one thing on the timeline, in s since the start.
type mark struct {
	kind     string // "round", "grants", "fault" or "violation"
	name     string
	from, to float64
	n        int
}

const perBar = 2.0 // s

// mark puts a round on the timeline. The events have another clock than the start of the run: the round began when its first
// event was written.
func (t *Totals) mark(topology string, begun time.Time, events []history.Event, result *check.Result) {
	if len(events) == 0 {
		return
	}
	first := slices.MinFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) }).At
	offset := begun.Sub(t.start).Seconds()
	at := func(ns int64) float64 { return offset + float64(ns-first)/1e9 }
	grants := map[int]int{}
	last := offset
	for _, e := range events {
		last = max(last, at(e.At))
		switch e.Kind {
		case history.Grant:
			grants[int(at(e.At)/perBar)]++
		case history.Fault:
			t.marks = append(t.marks, mark{kind: "fault", name: e.Name, from: at(e.At), to: at(e.End)})
		}
	}
	for bar, n := range grants {
		from := float64(bar) * perBar
		t.marks = append(t.marks, mark{kind: "grants", from: from, to: from + perBar, n: n})
	}
	for _, v := range result.Violations {
		t.marks = append(t.marks, mark{kind: "violation", name: v.Check, from: at(v.At), to: at(v.At)})
	}
	t.marks = append(t.marks, mark{kind: "round", name: topology, from: offset, to: last})
}

// timeline returns the run as SVG: the rounds, how many grants, and a row for each kind of fault.
func (t *Totals) timeline() string {
	const (
		left, width = 140.0, 840.0
		bars        = 90.0  // their height
		top         = 120.0 // the names of the rounds stand above
		rowHeight   = 14.0
	)
	end, most := 1.0, 1
	faults := map[string]bool{}
	for _, m := range t.marks {
		end = max(end, m.to)
		if m.kind == "grants" {
			most = max(most, m.n)
		}
		if m.kind == "fault" {
			faults[m.name] = true
		}
	}
	rows := slices.Sorted(maps.Keys(faults))
	x := func(s float64) float64 { return left + s/end*width }
	y := func(row int) float64 { return top + bars + 14 + rowHeight*float64(row) }
	below := y(len(rows)) // where the row of the violations stands
	height := below + 38

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="10">`+"\n",
		left+width+20, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	fmt.Fprintf(&b, `<text x="4" y="14" font-size="12">Grants a second (up to %.0f), and faults by kind</text>`+"\n",
		float64(most)/perBar)
	for _, m := range t.marks {
		if m.kind == "round" {
			middle := (x(m.from) + x(m.to)) / 2
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.0f" width="%.1f" height="%.0f" fill="#f2f2f2"/>`, x(m.from), top,
				max(x(m.to)-x(m.from)-1, 1), below+16-top)
			fmt.Fprintf(&b, `<text transform="translate(%.1f %.0f) rotate(-90)" fill="#555">%s</text>`+"\n", middle+3, top-4, m.name)
		}
	}

	// The bars of a row are one path, because an hour has thousands of them.
	paths := map[string]*strings.Builder{} // by kind of fault; "" for the grants
	for _, m := range t.marks {
		name, bottom, tall, least := "", top+bars, float64(m.n)/float64(most)*bars, 0.3
		switch m.kind {
		case "grants":
		case "fault":
			name, bottom, tall, least = m.name, y(slices.Index(rows, m.name)), 8, 0.8
		default:
			continue
		}
		if paths[name] == nil {
			paths[name] = new(strings.Builder)
		}
		wide := max(x(m.to)-x(m.from), least)
		fmt.Fprintf(paths[name], "M%.1f %.1fh%.1fv-%.1fh-%.1fz", x(m.from), bottom, wide, tall, wide)
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		color := "#e6862c"
		if name == "" {
			color = "#4c78a8"
		}
		fmt.Fprintf(&b, `<path d="%s" fill="%s" fill-opacity="0.8"/>`+"\n", paths[name], color)
	}
	for i, name := range rows {
		fmt.Fprintf(&b, `<text x="4" y="%.1f" fill="#333">%s</text>`+"\n", y(i), name)
	}
	fmt.Fprintf(&b, `<text x="4" y="%.1f" fill="#b00020">violations</text>`+"\n", below)
	for _, m := range t.marks {
		if m.kind == "violation" {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="#b00020"/>`+"\n", x(m.from), below-4)
		}
	}
	for i := range 6 {
		s := end * float64(i) / 5
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="#555" text-anchor="middle">%.1f min</text>`+"\n", x(s), height-6, s/60)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
