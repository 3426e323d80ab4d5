package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// report is the results of a run, and its conditions.
type report struct {
	circumstances []fact
	settings      []fact
	groups        []measuredGroup
}

// write writes the results and their charts to dir, which it makes if need be.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	errs := []error{writeFile(dir, "results.md", r.markdown())}
	for i := range r.groups {
		errs = append(errs, writeFile(dir, r.groups[i].name+".svg", r.groups[i].svg()))
	}
	return errors.Join(errs...)
}

func writeFile(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// howToRead explains the tables.
const howToRead = "Written by `go -C bench run .`, from the root of the repository." + `
All contestants of a table ran on the same redis-servers, and took turns in each round, in a random order. A figure is
the median over the rounds, with the quartiles in brackets.

- **ratio**: what this library has in the column before it divided by what the contestant has there, in the same round.
  Above 1 this library has more, which is better for pairs/s and worse for a time.
- **pairs/s**: pairs of an obtain and a release in a second; **wall µs**: the time that passes for each pair, whichever
  goroutine takes it; **p50**, **p99**: the time that one goroutine's pair takes.
- **client µs**: the time that the client's process is on a processor for a pair, user and system. Only one contestant works
  at a time; the server is another process.
- **allocs**, **bytes**: what the client allocates for a pair.
- **sent**: commands that the clients send for a lock; **run**: commands that the server runs for it, those inside scripts
  too; **server µs**: the time that the server is on a processor for it. Where there are several servers, these are sums.
`

// markdown returns the report.
func (r *report) markdown() string {
	var text strings.Builder
	text.WriteString("# Side by side\n\n" + howToRead + "\n")
	writeFacts(&text, "Run on", r.circumstances)
	writeFacts(&text, "Contestant", r.settings)
	for i := range r.groups {
		r.groups[i].writeMarkdown(&text)
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}

func writeFacts(text *strings.Builder, head string, facts []fact) {
	fmt.Fprintf(text, "| %s | |\n|---|---|\n", head)
	for _, f := range facts {
		fmt.Fprintf(text, "| %s | %s |\n", f.name, f.value)
	}
	text.WriteByte('\n')
}

func (g *measuredGroup) writeMarkdown(text *strings.Builder) {
	fmt.Fprintf(text, "## %s\n\n%s\n\n![%s](%s.svg)\n\n", g.title, g.about, g.title, g.name)
	g.writeSummary(text)
	for i := range g.tables {
		g.tables[i].writeMarkdown(text)
	}
}

func (t *table) writeMarkdown(text *strings.Builder) {
	fmt.Fprintf(text, "### %s\n\n| rounds: %d |", t.title, len(t.rows[0].rounds))
	columns := len(t.columns)
	for _, m := range t.columns {
		fmt.Fprintf(text, " %s |", m.head)
		if m.ratio {
			text.WriteString(" ratio |")
			columns++
		}
	}
	text.WriteString("\n|---|" + strings.Repeat("--:|", columns) + "\n")
	for i := range t.rows {
		fmt.Fprintf(text, "| %s |", t.rows[i].name)
		for _, m := range t.columns {
			fmt.Fprintf(text, " %s |", m.text(t.rows[i].spread(m)))
			if m.ratio {
				fmt.Fprintf(text, " %s |", t.ratioText(m, i))
			}
		}
		text.WriteByte('\n')
	}
	text.WriteByte('\n')
}

// text returns the median, with the quartiles if they are shown.
func (m *metric) text(s spread) string {
	if !m.spread {
		return m.format(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", m.format(s.median), m.format(s.low), m.format(s.high))
}

// ratioText returns how the first row compares with row i.
func (t *table) ratioText(m metric, i int) string {
	if i == 0 {
		return "1"
	}
	ratio := metric{format: fixed, spread: true}
	return ratio.text(t.ratio(m, i))
}
