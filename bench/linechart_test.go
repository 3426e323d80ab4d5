package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// published reads the group of that title from the tables of results/results.md, with the medians of pairRate only.
func published(t *testing.T, title, across string) *measuredGroup {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("results", "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	g := &measuredGroup{title: title, across: across}
	for _, part := range strings.Split(section, "\n### ")[1:] {
		name, _, _ := strings.Cut(part, "\n")
		x, err := strconv.ParseFloat(strings.ReplaceAll(strings.Fields(name)[0], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		cell := table{title: name, x: x, drawn: []metric{pairRate}}
		for _, found := range regexp.MustCompile(`(?m)^\| ([^|:]+) \| ([\d,]+) \(`).FindAllStringSubmatch(part, -1) {
			median, err := strconv.ParseFloat(strings.ReplaceAll(found[2], ",", ""), 64)
			if err != nil {
				t.Fatal(err)
			}
			cell.rows = append(cell.rows, row{name: found[1], rounds: []figures{{pairRate.head: median}}})
		}
		g.tables = append(g.tables, cell)
	}
	return g
}

// The README sums the chart up in six figures.
func TestReadmeHasTheFiguresOfTheTables(t *testing.T) {
	of := (&bench{plan: &plan{}}).parallelGroup()
	g := published(t, of.title, of.across)
	var figures []any
	for _, title := range []string{"1 goroutine", "64 goroutines"} {
		for _, name := range []string{thisLibrary, "bsm/redislock", rawGoRedis} {
			for i := range g.tables {
				for j := range g.tables[i].rows {
					if r := &g.tables[i].rows[j]; g.tables[i].title == title && r.name == name {
						figures = append(figures, whole(r.spread(pairRate).median/1000))
					}
				}
			}
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("In thousands a second: with one goroutine, this library acquires and releases %s locks, bsm/redislock %s, "+
		"and raw go-redis %s (the dotted line: `SET NX PX` and `DEL`). With 64 goroutines it is %s, %s and %s,", figures...)
	if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("the README does not say: %s", want)
	}
}

func TestPublishedLinesAreThoseOfTheTables(t *testing.T) {
	b := &bench{plan: &plan{}}
	of := b.parallelGroup()
	g := published(t, of.title, of.across)
	if len(g.tables) < 5 || len(g.tables[0].rows) < 5 {
		t.Fatalf("read %d tables", len(g.tables))
	}
	name := filepath.Join("results", of.name+".svg")
	if *update {
		if err := os.WriteFile(name, []byte(g.svg()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	drawn, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(drawn) != g.svg() {
		t.Errorf("%s is not what the tables of results.md say (go test -update writes it anew)", name)
	}
}
