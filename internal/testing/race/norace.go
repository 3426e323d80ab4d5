//go:build !race

// Package race tells tests whether they run with the race detector.
package race

// Enabled says so.
const Enabled = false
