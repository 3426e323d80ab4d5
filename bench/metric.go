package main

import (
	"strconv"
	"strings"
)

// metric is something that is measured: a column of the tables.
type metric struct {
	head   string // of its column, with the unit
	format func(float64) string
	spread bool // its quartiles are shown
}

// figures are the values of one contestant in one round, by the head of the metric.
type figures map[string]float64

// What the cells measure.
var (
	pairRate  = metric{"pairs/s", whole, true}
	median    = metric{"p50 µs", digits, false}
	tail      = metric{"p99 µs", digits, true}
	allocs    = metric{"allocs", digits, false}
	allocated = metric{"bytes", whole, false}
	sent      = metric{"sent", digits, false}
	executed  = metric{"run", digits, false}
	serverCPU = metric{"server µs", digits, true}

	lockRate    = metric{"locks/s", whole, true}
	fairness    = metric{"Jain", thousandths, true}
	medianWait  = metric{"wait p50 ms", digits, false}
	longestWait = metric{"longest wait ms", digits, true}
	stuck       = metric{"stuck", whole, false}

	serverLoad  = metric{"server CPU %", digits, true}
	renewalRate = metric{"renewals/s", whole, false}
	perRead     = metric{"renewals/read", digits, false}
	perRenewal  = metric{"server µs/renewal", digits, false}
	heapPerLock = metric{"heap B/lock", whole, false}
	stack       = metric{"stack B/lock", whole, false}
	goroutines  = metric{"goroutines/lock", fixed, false}
	lost        = metric{"lost", whole, false}
)

// whole writes 12345.6 as 12,346.
func whole(value float64) string {
	text := strconv.FormatFloat(value, 'f', 0, 64)
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	var grouped strings.Builder
	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			grouped.WriteByte(',')
		}
		grouped.WriteRune(digit)
	}
	return sign + grouped.String()
}

// digits writes three digits at least: 0.123, 1.23, 12.3, 123, 1,234.
func digits(value float64) string {
	switch size := max(value, -value); {
	case size >= 99.95:
		return whole(value)
	case size >= 9.995:
		return strconv.FormatFloat(value, 'f', 1, 64)
	case size >= 0.9995 || size == 0:
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
	return strconv.FormatFloat(value, 'f', 3, 64)
}

// fixed writes two decimals.
func fixed(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) }

// thousandths writes three decimals.
func thousandths(value float64) string { return strconv.FormatFloat(value, 'f', 3, 64) }
