package main

import (
	"strconv"
	"strings"
)

// metric is a measured quantity: a column of the tables.
type metric struct {
	head   string // the head of its column, with the unit
	format func(float64) string
	spread bool // its quartiles are shown
	ratio  bool // the column after it compares the first row with the others
}

// figures are the values of one contestant in one round, by the head of the metric.
type figures map[string]float64

// What the cells measure.
var (
	pairRate  = metric{head: "pairs/s", format: whole, spread: true, ratio: true}
	wall      = metric{head: "wall µs", format: digits, spread: true, ratio: true}
	median    = metric{head: "p50 µs", format: digits}
	tail      = metric{head: "p99 µs", format: digits, spread: true}
	clientCPU = metric{head: "client µs", format: digits, spread: true, ratio: true}
	allocs    = metric{head: "allocs", format: digits}
	allocated = metric{head: "bytes", format: whole}
	sent      = metric{head: "sent", format: digits}
	executed  = metric{head: "run", format: digits}
	serverCPU = metric{head: "server µs", format: digits, spread: true}

	lockRate    = metric{head: "locks/s", format: whole, spread: true, ratio: true}
	fairness    = metric{head: "Jain", format: thousandths, spread: true}
	medianWait  = metric{head: "wait p50 ms", format: digits}
	longestWait = metric{head: "longest wait ms", format: digits, spread: true}
	tailWait    = metric{head: "wait p99.9 ms", format: digits, spread: true}
	tailShare   = metric{head: "p99.9 / fair share", format: fixed, spread: true}
	freed       = metric{head: "keys freed", format: fixed}
	stuck       = metric{head: "stuck", format: whole}

	serverLoad  = metric{head: "server CPU %", format: digits, spread: true, ratio: true}
	renewalRate = metric{head: "renewals/s", format: whole}
	perRead     = metric{head: "renewals/read", format: digits}
	perRenewal  = metric{head: "server µs/renewal", format: digits}
	heapPerLock = metric{head: "heap B/lock", format: whole}
	stack       = metric{head: "stack B/lock", format: whole}
	goroutines  = metric{head: "goroutines/lock", format: fixed}
	lost        = metric{head: "lost", format: whole}
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
