package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/redislock/redislock/torture/internal/round"
)

// progress shows a line about the run. At a terminal, it updates the line each second. Elsewhere, it prints one each 30 s.
type progress struct {
	end  time.Time
	over chan struct{}
	done sync.WaitGroup

	mu         sync.Mutex // protects the fields below
	what       string     // what is under way
	current    *round.Progress
	grants     int64 // of earlier rounds
	faults     int64
	violations int
}

func showProgress(end time.Time) *progress {
	p := &progress{end: end, over: make(chan struct{})}
	p.done.Go(p.run)
	return p
}

// begin shows a round that begins.
func (p *progress) begin(what string) *round.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.current = what, new(round.Progress)
	return p.current
}

// finish counts a round that has ended.
func (p *progress) finish(violations int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants += p.current.Grants.Load()
	p.faults += p.current.Faults.Load()
	p.violations += violations
	p.current = new(round.Progress)
}

// stop removes the line.
func (p *progress) stop() {
	close(p.over)
	p.done.Wait()
}

func (p *progress) run() {
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	pause := 30 * time.Second
	if terminal {
		pause = time.Second
	}
	for {
		select {
		case <-p.over:
			if terminal {
				fmt.Fprint(os.Stderr, "\r"+strings.Repeat(" ", 100)+"\r")
			}
			return
		case <-time.After(pause):
		}
		if line := p.line(); terminal {
			fmt.Fprintf(os.Stderr, "\r%-100s", line)
		} else {
			fmt.Fprintln(os.Stderr, line)
		}
	}
}

func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return ""
	}
	left := ""
	if !p.end.IsZero() {
		left = fmt.Sprintf(", %v left", max(0, time.Until(p.end)).Round(time.Second))
	}
	return fmt.Sprintf("%s: %d grants, %d faults, %d violations%s", p.what, p.grants+p.current.Grants.Load(),
		p.faults+p.current.Faults.Load(), p.violations, left)
}
