package main

import (
	"fmt"
	"slices"
	"strings"
)

// writeSummary writes one table for all cells of the group: each summed metric of this library, divided by that of the
// contestant. It writes nothing if the group has no summed metric.
func (g *measuredGroup) writeSummary(text *strings.Builder) {
	if len(g.summed) == 0 {
		return
	}
	var names, heads []string
	for i := range g.tables {
		for _, r := range g.tables[i].rows[1:] {
			if !slices.Contains(names, r.name) {
				names = append(names, r.name)
			}
		}
	}
	for _, m := range g.summed {
		heads = append(heads, m.head)
	}
	fmt.Fprintf(text, "At a glance, the ratios of %s; below 1 this library takes less:\n\n| |", strings.Join(heads, " / "))
	for _, name := range names {
		fmt.Fprintf(text, " %s |", name)
	}
	text.WriteString("\n|---|" + strings.Repeat("--:|", len(names)) + "\n")
	for i := range g.tables {
		t := &g.tables[i]
		fmt.Fprintf(text, "| %s |", t.title)
		for _, name := range names {
			fmt.Fprintf(text, " %s |", t.summary(g.summed, name))
		}
		text.WriteByte('\n')
	}
	text.WriteByte('\n')
}

// summary returns the ratios of the first row to the named one for the metrics; nothing if no row has that name.
func (t *table) summary(metrics []metric, name string) string {
	i := slices.IndexFunc(t.rows, func(r row) bool { return r.name == name })
	if i < 0 {
		return ""
	}
	var ratios []string
	for _, m := range metrics {
		ratios = append(ratios, t.ratioText(m, i))
	}
	return strings.Join(ratios, " / ")
}
