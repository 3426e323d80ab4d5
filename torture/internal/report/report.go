// Package report sums up, as Markdown with a timeline, what a torture run has done and found.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
)

// The names of the files.
const (
	File         = "report.md"
	TimelineFile = "timeline.svg"
	ControlsFile = "controls.md"
)

// topologyTotals are the sums of the rounds on one topology.
type topologyTotals struct {
	rounds, grants, faults, lossy, violations, excused, lateRefused int
}

func (t *topologyTotals) add(o topologyTotals) {
	t.rounds += o.rounds
	t.grants += o.grants
	t.faults += o.faults
	t.lossy += o.lossy
	t.violations += o.violations
	t.excused += o.excused
	t.lateRefused += o.lateRefused
}

// Totals are the sums of a run.
type Totals struct {
	start               time.Time
	seed                uint64
	workers, goroutines int
	client              string // of the workers

	all        topologyTotals
	order      []string // of the topologies
	topologies map[string]*topologyTotals
	calls      map[string]map[string]int // by function and outcome
	options    map[string]int
	errors     map[string]int // of Redis, by their first word
	unknown    map[string]int // other errors that no call should have, by their text
	faults     map[string]int // by kind
	failed     map[string]int // faults that could not be done
	checked    map[string]int
	violations map[string]int
	excused    map[string]map[string]int // by check and topology
	late       time.Duration             // the longest time from Until to the end of a context that was derived from a kept one
	slow       time.Duration             // the longest time from the end of a ctx to the return of its call
	wait       time.Duration             // the longest wait in line
	marks      []mark
}

// New returns the sums of a run that begins.
func New(start time.Time, seed uint64, workers, goroutines int, client string) *Totals {
	return &Totals{
		start: start, seed: seed, workers: workers, goroutines: goroutines, client: client,
		topologies: map[string]*topologyTotals{}, calls: map[string]map[string]int{}, options: map[string]int{},
		errors: map[string]int{}, unknown: map[string]int{}, faults: map[string]int{}, failed: map[string]int{},
		checked: map[string]int{}, violations: map[string]int{}, excused: map[string]map[string]int{},
	}
}

// Add adds a round that began at that time.
func (t *Totals) Add(topology string, begun time.Time, events []history.Event, result *check.Result) {
	own := topologyTotals{
		rounds: 1, violations: len(result.Violations), excused: len(result.Excused), lateRefused: result.LateRefused,
	}
	for _, v := range result.Violations {
		t.violations[v.Check]++
	}
	for _, v := range result.Excused {
		if t.excused[v.Check] == nil {
			t.excused[v.Check] = map[string]int{}
		}
		t.excused[v.Check][topology]++
	}
	for name, n := range result.Checked {
		t.checked[name] += n
	}
	for _, e := range events {
		switch e.Kind {
		case history.Grant:
			own.grants++
			if e.Queue && e.Refused > 0 {
				t.wait = max(t.wait, time.Duration(e.At-e.Start))
			}
		case history.Done:
			t.addCall(e)
		case history.Late:
			t.late = max(t.late, e.Left)
		case history.Fault:
			own.faults++
			t.faults[e.Name]++
			if e.Lossy {
				own.lossy++
			}
			if e.Outcome == "failed" {
				t.failed[e.Name]++
			}
		}
	}
	if t.topologies[topology] == nil {
		t.topologies[topology] = new(topologyTotals)
		t.order = append(t.order, topology)
	}
	t.topologies[topology].add(own)
	t.all.add(own)
	t.mark(topology, begun, events, result)
}

func (t *Totals) addCall(e history.Event) {
	if t.calls[e.Name] == nil {
		t.calls[e.Name] = map[string]int{}
	}
	t.calls[e.Name][e.Outcome]++
	if e.Outcome == "unexpected" && e.Target != "" {
		t.unknown[e.Target]++
	}
	for _, option := range e.Options {
		if code, is := strings.CutPrefix(option, "error:"); is {
			t.errors[code]++
		} else {
			t.options[option]++
		}
	}
	if e.Limit > 0 && !check.LimitIsOver(e) && e.Name != "Do" {
		t.slow = max(t.slow, time.Duration(e.At-e.Limit))
	}
}

// Summary returns a few lines for a terminal.
func (t *Totals) Summary() string {
	var b strings.Builder
	for _, name := range t.order {
		own := t.topologies[name]
		fmt.Fprintf(&b, "%-9s %3d rounds, %8d grants, %5d faults (%d lose data), %d violations, %d excused\n", name,
			own.rounds, own.grants, own.faults, own.lossy, own.violations, own.excused)
	}
	return b.String()
}

// Write writes the report and its timeline into a directory.
func (t *Totals) Write(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, TimelineFile), []byte(t.timeline()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, File), []byte(t.markdown()), 0o600)
}

func (t *Totals) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Began %s, %.1f minutes, seed %d, %d worker processes with %d goroutines each, client: %s, "+
		"%s, %s/%s, %d CPUs.\n\n",
		t.start.UTC().Format("2006-01-02 15:04 UTC"), time.Since(t.start).Minutes(), t.seed, t.workers, t.goroutines, t.client,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	b.WriteString("![Timeline](" + TimelineFile + ")\n\n")
	b.WriteString("| topology | rounds | grants | faults | these lose data | violations | excused | late writes refused |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, name := range t.order {
		row(&b, name, t.topologies[name])
	}
	row(&b, "**all**", &t.all)
	b.WriteString("\n| check | cases looked at | violations | excused |\n|---|--:|--:|---|\n")
	for _, name := range check.All {
		fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", name, t.checked[name], t.violations[name], cmp.Or(items(t.excused[name]), "0"))
	}
	fmt.Fprintf(&b, "\nLongest wait in line: %v. Longest time from the end of a ctx to the return of its call: %v. "+
		"Longest time from `Until` until code with a context derived from a kept one heard of its end: %v.\n",
		t.wait.Round(time.Millisecond), t.slow.Round(time.Millisecond), t.late.Round(time.Millisecond))

	b.WriteString("\n| fault | times | could not be done |\n|---|--:|--:|\n")
	for _, name := range slices.Sorted(maps.Keys(t.faults)) {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", name, t.faults[name], t.failed[name])
	}
	outcomes := map[string]int{}
	for _, by := range t.calls {
		for outcome, n := range by {
			outcomes[outcome] += n
		}
	}
	columns := slices.SortedFunc(maps.Keys(outcomes), func(a, b string) int { return cmp.Compare(outcomes[b], outcomes[a]) })
	b.WriteString("\n| call | " + strings.Join(columns, " | ") + " |\n|---|" + strings.Repeat("--:|", len(columns)) + "\n")
	for _, name := range slices.Sorted(maps.Keys(t.calls)) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, outcome := range columns {
			if n := t.calls[name][outcome]; n > 0 {
				fmt.Fprintf(&b, " %d |", n)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	list(&b, "Options, and how many calls used them", t.options)
	list(&b, "Errors of Redis that callers saw", t.errors)
	list(&b, "Errors that no call should have", t.unknown)
	return b.String()
}

func row(b *strings.Builder, name string, t *topologyTotals) {
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %d |\n", name, t.rounds, t.grants, t.faults, t.lossy, t.violations,
		t.excused, t.lateRefused)
}

func list(b *strings.Builder, title string, counts map[string]int) {
	fmt.Fprintf(b, "\n%s: %s.\n", title, cmp.Or(items(counts), "none"))
}

// items returns names with their counts; "" for none.
func items(counts map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(all, ", ")
}

// Control is the result of one control.
type Control struct {
	Name, Off, Topology string
	Check, What         string // "" if it was not noticed
	After               time.Duration
}

// WriteControls writes the table of the controls into a directory.
func WriteControls(dir string, controls []Control) error {
	var b strings.Builder
	b.WriteString("| without | what the library does not do then | on | noticed by | after |\n|---|---|---|---|--:|\n")
	for _, c := range controls {
		noticed, after := c.Check, fmt.Sprintf("%.0f s", c.After.Seconds())
		if noticed == "" {
			noticed, after = "**not noticed**", "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Name, c.Off, c.Topology, noticed, after)
	}
	return os.WriteFile(filepath.Join(dir, ControlsFile), []byte(b.String()), 0o600)
}
