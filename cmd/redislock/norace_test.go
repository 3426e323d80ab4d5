//go:build !race

package main

// raced says that the specs run under the race detector.
const raced = false
