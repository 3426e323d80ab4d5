package main

import "math"

// table holds what a cell came to.
type table struct {
	title   string
	columns []metric
	drawn   []metric // in the chart
	rows    []row    // the first is the one that the others are compared with
}

// row holds what one contestant came to, round by round.
type row struct {
	name   string
	rounds []figures
}

// spread returns the spread of a metric over the rounds.
func (r *row) spread(m metric) spread {
	values := make([]float64, len(r.rounds))
	for i, f := range r.rounds {
		values[i] = f[m.head]
	}
	return spreadOf(values)
}

// ratio returns the spread of what the first row has of a metric, divided by what row i has of it in the same round.
// Rounds in which row i has nothing are left out.
func (t *table) ratio(m metric, i int) spread {
	var ratios []float64
	for j, f := range t.rows[i].rounds {
		if ratio := t.rows[0].rounds[j][m.head] / f[m.head]; !math.IsInf(ratio, 0) && !math.IsNaN(ratio) {
			ratios = append(ratios, ratio)
		}
	}
	return spreadOf(ratios)
}
