// Package browse shows keys of a Redis on a screen, where the user inspects and frees them. It does not know which keys, or
// how they are found.
package browse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/cmd/redislock/internal/scan"
	"github.com/redislock/redislock/cmd/redislock/internal/screen"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

// Look finds rows in an order of those that Run was given.
type Look func(ctx context.Context, order string) (*screen.Rows, error)

// Can reports whether stdout is a terminal that can show a screen.
func Can(s *connect.Session) bool { return term.Is(s.Stdout) && s.Getenv("TERM") != "dumb" }

// Run shows what look finds, on the terminal of stdout, and looks again every so often. It ends as [screen.Run] does.
func Run(ctx context.Context, s *connect.Session, every time.Duration, orders []string, look Look) error {
	complaints := make(chan string, 1)
	back := s.ReportTo(func(text string) {
		select {
		case complaints <- words.Printable(text):
		default: // one is enough for one line
		}
	})
	defer back()
	b := &browser{session: s}
	defer b.close()
	return screen.Run(ctx, s.Stdout.(*os.File), s.Getenv, &screen.Source{
		Every: every, Orders: orders, Messages: complaints, Look: look, Inspect: b.inspect, Free: b.free,
	})
}

// Repeat looks again and again, until ctx ends, and prints what it finds. The time stands in a line above, or with inside
// only in what printAt prints. Repeat returns the error of the first look. Later it reports a Redis that fails, and asks
// again.
func Repeat[T any](
	ctx context.Context, s *connect.Session, every time.Duration, inside bool,
	look func(context.Context) (T, error), printAt func(found T, at string) error,
) error {
	for first := true; ; first = false {
		found, err := look(ctx)
		switch at := time.Now(); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && first:
			return err
		case err != nil:
			s.Complain(err)
		default:
			if !inside && !first {
				fmt.Fprintln(s.Stdout)
			}
			if !inside {
				fmt.Fprintln(s.Stdout, at.Format(time.RFC3339))
			}
			if err := printAt(found, at.UTC().Format(time.RFC3339Nano)); err != nil {
				return err
			}
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}

type browser struct {
	session *connect.Session

	mu      sync.Mutex // protects freeing
	freeing *connect.Session
}

func (b *browser) inspect(ctx context.Context, key string) (screen.Page, error) {
	found, err := scan.Inspect(ctx, b.session, []string{key})
	if err != nil {
		return nil, err
	}
	return func(s term.Screen) []string {
		return append([]string{found[0].Name(s)}, found[0].Table().Lines(s, false)...)
	}, nil
}

func (b *browser) free(ctx context.Context, key string) (*screen.Question, error) {
	ctx, cancel := locking.ReleasePatience().Context(ctx)
	defer cancel()
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	force, err := locking.PrepareForce(ctx, s, []string{key}, false)
	switch {
	case err != nil:
		return nil, err
	case len(force.Held) == 0:
		return nil, errors.New(strings.Join(force.Done, "; "))
	}
	return &screen.Question{
		Facts: func(s term.Screen) []string {
			t := term.Table{Columns: []term.Column{{Fit: term.Wrap}}}
			t.Add(force.Facts()...)
			return t.Lines(s, false)
		},
		Text: locking.ForceQuestion, No: locking.ErrNothingReleased.Error(),
		Yes: func(ctx context.Context) (string, error) {
			ctx, cancel := locking.ReleasePatience().Context(ctx)
			defer cancel()
			return force.Release(ctx, 0)
		},
	}, nil
}

// open returns a session that heeds the guard, if there is one: a release needs that, and to look at keys does not.
func (b *browser) open(ctx context.Context) (*connect.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freeing != nil {
		return b.freeing, nil
	}
	target := *b.session.Target
	target.Guarded = true
	s, err := target.Open(ctx)
	b.freeing = s
	return s, err
}

func (b *browser) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freeing != nil { // after a release that failed, the library would try for a while to complete it
		locking.Within(200*time.Millisecond, b.freeing.Close)
	}
}
