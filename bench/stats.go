package main

import "slices"

// spread is the median of some values, between their quartiles.
type spread struct {
	low, median, high float64
}

// spreadOf returns the spread of values; all of it is 0 if there are none. It does not change values.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{low: quantile(sorted, 0.25), median: quantile(sorted, 0.5), high: quantile(sorted, 0.75)}
}

// quantile returns the value below which the fraction q of sorted lies; 0 if there are no values. It interpolates between
// neighbours.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// jain returns Jain's index of fairness: 1 if all shares are equal, 1/n if one of n has everything, and 0 if all shares are
// 0. See Jain, Chiu and Hawe, A Quantitative Measure of Fairness and Discrimination, DEC TR-301, 1984.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, share := range shares {
		sum += share
		squares += share * share
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
