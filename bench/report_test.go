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
	rounds := func(cpu float64, rates ...float64) []figures {
		var all []figures
		for _, rate := range rates {
			all = append(all, figures{
				pairRate.head: rate, wall.head: 1e6 / rate, median.head: 1e6 / rate, clientCPU.head: cpu, allocs.head: 22,
			})
		}
		return all
	}
	return &report{
		circumstances: []fact{{"Processor", "a fast one"}, {"Go", "1.26"}},
		settings:      []fact{{thisLibrary, "nil options"}, {"peer", "its defaults"}},
		groups: []measuredGroup{{
			name: "parallel", title: "One & only", about: "What is done.",
			summed: []metric{wall, clientCPU},
			tables: []table{{
				title:   "a <key>",
				columns: []metric{pairRate, median, clientCPU, allocs},
				drawn:   []metric{pairRate},
				rows: []row{
					{name: thisLibrary, rounds: rounds(30, 20_000, 22_000, 24_000)},
					{name: "peer", rounds: rounds(20, 10_000, 11_000, 10_000)},
				},
			}, {
				title:   "two keys",
				columns: []metric{pairRate},
				rows: []row{
					{name: thisLibrary, rounds: rounds(30, 20_000)},
					{name: "newcomer", rounds: rounds(60, 25_000)},
				},
			}},
		}, {
			name: "across", title: "Lines & more", about: "What is done by more and more.", across: "keys",
			tables: []table{{
				title: "1 key", x: 1, columns: []metric{pairRate}, drawn: []metric{pairRate},
				rows: []row{
					{name: thisLibrary, rounds: rounds(30, 20_000, 22_000.4, 24_000)},
					{name: "peer", rounds: rounds(20, 21_000)},
				},
			}, {
				title: "8 keys", x: 8, columns: []metric{pairRate}, drawn: []metric{pairRate},
				rows: []row{
					{name: thisLibrary, rounds: rounds(30, 40_000)},
					{name: "peer", rounds: rounds(20, 39_000)},
					{name: "newcomer", rounds: rounds(20, 10_000)},
				},
			}},
		}, {
			name: "kept", title: "Without a summary", about: "What else is done.",
			tables: []table{{title: "x", columns: []metric{fairness}, rows: []row{{name: thisLibrary, rounds: []figures{{}}}}}},
		}},
	}
}

func TestReportIsWrittenAsGolden(t *testing.T) {
	dir := t.TempDir()
	if err := sample().write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"results.md", "parallel.svg", "across.svg"} {
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
