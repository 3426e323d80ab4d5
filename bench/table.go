package main

import "math"

// table holds the results of a cell.
type table struct {
	title   string
	x       float64 // on the axis of a chart of lines
	columns []metric
	drawn   []metric // in the chart
	rows    []row    // the first is the one with which the others are compared
}

// row holds the results of one contestant, round by round.
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

// ratio returns the spread of the first row's figure for a metric, divided by that of row i in the same round. It leaves out
// rounds in which row i has 0.
func (t *table) ratio(m metric, i int) spread {
	var ratios []float64
	for j, f := range t.rows[i].rounds {
		if ratio := t.rows[0].rounds[j][m.head] / f[m.head]; !math.IsInf(ratio, 0) && !math.IsNaN(ratio) {
			ratios = append(ratios, ratio)
		}
	}
	return spreadOf(ratios)
}
