package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files in place of reading them")

// sample is a small report.
func sample() *report {
	rounds := func(rates ...float64) []figures {
		var all []figures
		for _, rate := range rates {
			all = append(all, figures{pairRate.head: rate, median.head: 1e6 / rate, allocs.head: 22})
		}
		return all
	}
	return &report{
		circumstances: []fact{{"Processor", "a fast one"}, {"Go", "1.26"}},
		settings:      []fact{{thisLibrary, "nil options"}, {"peer", "its defaults"}},
		groups: []measuredGroup{{
			name: "serial", title: "One & only", about: "What is done.",
			tables: []table{{
				title:   "a <key>",
				columns: []metric{pairRate, median, allocs},
				drawn:   []metric{pairRate},
				rows: []row{
					{name: thisLibrary, rounds: rounds(20_000, 22_000, 24_000)},
					{name: "peer", rounds: rounds(10_000, 11_000, 10_000)},
				},
			}},
		}},
	}
}

func TestReportIsWrittenAsGolden(t *testing.T) {
	dir := t.TempDir()
	if err := sample().write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"results.md", "serial.svg"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from the golden one (go test -update writes it anew):\n%s", name, got)
		}
	}
}
