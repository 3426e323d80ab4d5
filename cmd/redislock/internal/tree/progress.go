package tree

import (
	"fmt"
	"io"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// progress says on a terminal how far a long scan has come, in one line of stderr that goes away at its end.
type progress struct {
	out  io.Writer // nil to say nothing
	next time.Time // when to say something
	said bool
}

const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// newProgress returns one that says nothing with --watch, which has the screen.
func newProgress(s *shower) *progress {
	p := &progress{next: time.Now().Add(progressAfter)}
	if term.Is(s.Stderr) && s.opt.watch == 0 {
		p.out = s.Stderr
	}
	return p
}

func (p *progress) update(looked, lines int) {
	if now := time.Now(); p.out != nil && now.After(p.next) {
		p.next, p.said = now.Add(progressEvery), true
		fmt.Fprintf(p.out, "\rlooked through %d keys, found %d lines\x1b[K", looked, lines)
	}
}

func (p *progress) end() {
	if p.said {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
