//go:build race

package main

// raced says that the specs run under the race detector; the program that they run then has it too.
const raced = true
