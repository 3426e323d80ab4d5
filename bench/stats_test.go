package main

import (
	"math"
	"testing"
)

func TestSpreadOf(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{3, 1}, spread{1.5, 2, 2.5}},
		{[]float64{5, 1, 4, 2, 3}, spread{2, 3, 4}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("spreadOf(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestSpreadOfLeavesItsArgumentAlone(t *testing.T) {
	values := []float64{2, 1}
	spreadOf(values)
	if values[0] != 2 {
		t.Error("spreadOf has sorted its argument")
	}
}

func TestQuantile(t *testing.T) {
	sorted := []float64{0, 10, 20, 30, 40}
	for q, want := range map[float64]float64{0: 0, 0.1: 4, 0.5: 20, 0.99: 39.6, 1: 40} {
		if got := quantile(sorted, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{0, 0}, 0},
		{[]float64{5, 5, 5}, 1},
		{[]float64{9, 0, 0, 0}, 0.25},
		{[]float64{1, 3}, 0.8},
	} {
		if got := jain(c.shares); got != c.want {
			t.Errorf("jain(%v) = %v, want %v", c.shares, got, c.want)
		}
	}
}
