package redislockotel_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// prometheusNames returns the names under which Prometheus knows the metrics that the real SDK collects: dots become
// underscores, the unit s is written out, a monotonic sum ends in total, and a histogram has three series. Units in
// braces, and 1 for a histogram, are left out.
func prometheusNames(w *watched) map[string]string {
	names := map[string]string{} // to the metric
	for _, m := range w.metrics() {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, series := range []string{"_bucket", "_sum", "_count"} {
				names[name+series] = m.Name
			}
		case metricdata.Sum[int64]:
			if data.IsMonotonic {
				name += "_total"
			}
			names[name] = m.Name
		default:
			w.t.Errorf("%s is a %T", m.Name, data)
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\bredislock_[a-z_]+\b`)

// metricsIn returns the names of metrics in a query: what looks like one and is not a label.
func metricsIn(query string) []string {
	var names []string
	for _, name := range metricName.FindAllString(query, -1) {
		if name != "redislock_lock" {
			names = append(names, name)
		}
	}
	return names
}

// labels finds the labels that a query compares, with the value.
var labels = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!=|=)\s*"([^"]*)"`)

// checkQueries checks that queries use only metrics and attribute values that exist, and between them every metric.
func checkQueries(t *testing.T, w *watched, queries []string) {
	t.Helper()
	known := prometheusNames(w)
	values := map[string]bool{ // all that the package doc promises; the specs of the metrics check that they come
		"outcome=obtained": true, "outcome=refused": true, "outcome=canceled": true, "outcome=error": true,
		"result=done": true, "result=failed": true, "result=dropped": true,
	}
	used := map[string]bool{}
	for _, query := range queries {
		found := metricsIn(query)
		if len(found) == 0 {
			t.Errorf("no metric in %s", query)
		}
		for _, name := range found {
			if known[name] == "" {
				t.Errorf("there is no %s: %s", name, query)
			}
			used[known[name]] = true
		}
		for _, label := range labels.FindAllStringSubmatch(query, -1) {
			switch name, value := label[1], label[2]; name {
			case "redislock_lock":
			case "le":
				if value != "0.3" { // a bound of the margin
					t.Errorf("no bucket ends at %s: %s", value, query)
				}
			default:
				if !values[name+"="+value] {
					t.Errorf("there is no %s=%s: %s", name, value, query)
				}
			}
		}
	}
	for _, name := range known {
		if !used[name] {
			t.Errorf("nothing shows %s", name)
		}
	}
}

func TestDashboard(t *testing.T) {
	w := everything(t)
	text, err := os.ReadFile("../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Title  string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var queries []string
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		if panel.Title == "" || panel.Type == "" || len(panel.Targets) == 0 || ids[panel.ID] {
			t.Errorf("panel %+v", panel)
		}
		if p := panel.GridPos; p.W < 1 || p.H < 1 || p.X+p.W > 24 {
			t.Errorf("panel %q stands outside", panel.Title)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			queries = append(queries, target.Expr)
			if open, closed := strings.Count(target.Expr, "("), strings.Count(target.Expr, ")"); open != closed {
				t.Errorf("parentheses in %s", target.Expr)
			}
		}
	}
	checkQueries(t, w, queries)
	for _, variable := range dashboard.Templating.List {
		for _, name := range metricsIn(variable.Definition) {
			if prometheusNames(w)[name] == "" {
				t.Errorf("there is no %s", name)
			}
		}
	}
}

func TestObservingDoc(t *testing.T) {
	w := everything(t)
	text, err := os.ReadFile("../docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllSubmatch(text, -1) {
		queries = append(queries, string(block[1]))
	}
	alerts := regexp.MustCompile(`(?m)^  expr: (.*)$`).FindAllSubmatch(text, -1)
	for _, alert := range alerts {
		queries = append(queries, string(alert[1]))
	}
	if len(alerts) < 5 || len(queries)-len(alerts) < 5 {
		t.Errorf("%d alerts, %d queries", len(alerts), len(queries))
	}
	checkQueries(t, w, queries)
	for name, metric := range prometheusNames(w) {
		if base := strings.TrimSuffix(name, "_bucket"); strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
			continue
		} else if row := "| `" + metric + "`"; !strings.Contains(string(text), row) || !strings.Contains(string(text), "`"+base+"` |") {
			t.Errorf("the table lacks %s, or its name in Prometheus, %s", metric, base)
		}
	}
}
