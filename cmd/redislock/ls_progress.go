package main

import (
	"fmt"
	"io"
	"time"
)

// progressBar shows on a terminal, in one line, how far a scan is that takes its time.
type progressBar struct {
	out   io.Writer // nil where nobody would see it
	next  time.Time
	shown bool
}

const (
	progressAfter = 300 * time.Millisecond // who is done by then shows none
	progressEvery = 100 * time.Millisecond
)

func newProgressBar(out io.Writer) *progressBar {
	bar := &progressBar{next: time.Now().Add(progressAfter)}
	if isTerminal(out) {
		bar.out = out
	}
	return bar
}

func (bar *progressBar) show(p scanProgress) {
	if now := time.Now(); bar.out != nil && now.After(bar.next) {
		bar.next, bar.shown = now.Add(progressEvery), true
		of := ""
		if p.keys > 0 {
			of = fmt.Sprintf(" of about %d keys (%d %%)", p.keys, 100*p.looked/p.keys)
		}
		fmt.Fprintf(bar.out, "\r\x1b[Klooked at %d%s, found %d", p.looked, of, p.locks)
	}
}

// clear takes the line away.
func (bar *progressBar) clear() {
	if bar.shown {
		fmt.Fprint(bar.out, "\r\x1b[K")
		bar.shown = false
	}
}
