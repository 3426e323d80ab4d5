package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

var errQuit = errors.New("q")

// watch shows the trees again and again, until ctx ends, or somebody presses q. On a terminal it uses the alternate screen.
// After the first success it reports a Redis that fails, and asks again.
func (s *shower) watch(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	live := term.Is(s.Stdout) && !s.opt.json
	var resized, stopped chan os.Signal
	var endKeys func()
	enter := func() {
		fmt.Fprint(s.Stdout, enterScreen)
		endKeys = job.ReadKeys(func(key byte) {
			if key == 'q' || key == 'Q' {
				end(errQuit)
			}
		})
	}
	leave := func() {
		endKeys() // before the normal screen is back: what is typed there is for the shell
		fmt.Fprint(s.Stdout, leaveScreen)
	}
	if live {
		resized, stopped = job.ScreenSignals()
		enter()
		defer leave()
	}
	for first := true; ; first = false {
		found, err := s.look(ctx)
		switch {
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), errQuit):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && first:
			return err
		case live:
			err = s.redraw(found, err)
		case err != nil:
			s.Complain(err)
			err = nil
		default:
			err = s.append(found, first)
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(s.opt.watch):
		case <-resized:
		case <-stopped:
			leave()
			job.Suspend()
			enter()
		case <-ctx.Done():
		}
	}
}

// redraw fills the terminal anew, and no more than it has room for. It does not clear it first, because that would flicker.
func (s *shower) redraw(found *finding, failed error) error {
	screen := s.Screen()
	now := time.Now().Format(time.TimeOnly)
	var lines []string
	title, colour := now+"   ", term.Faint
	if failed != nil {
		title, colour = title+term.Printable(failed.Error()), term.Red
	} else {
		title = fmt.Sprintf("%s  %s, %s, q ends, every %v", now, count(len(found.tree.Waiters), "waiter"),
			count(len(found.tree.Circles), "circle"), s.opt.watch)
		b := s.opt.bounds
		room := max(1, cmp.Or(screen.Lines, math.MaxInt)-3) // without the title, an empty line and the line below
		if b.lines == 0 || b.lines > room {
			b.lines = room
		}
		d := draw(found, screen, b)
		lines = strings.Split(strings.TrimSuffix(d.out.String(), "\n"), "\n")
		if d.cut {
			lines = append(lines, screen.Paint(term.Faint, "and more lines"))
		}
	}
	head := screen.Paint(colour, term.Shorten(title, cmp.Or(screen.Columns, math.MaxInt)))
	lines = append([]string{head, ""}, lines...)
	lines = lines[:min(len(lines), cmp.Or(screen.Lines, math.MaxInt))]
	// From the top, clear the rest of each line, and in the end what is below.
	_, err := fmt.Fprint(s.Stdout, "\x1b[H", strings.Join(lines, "\x1b[K\n"), "\x1b[K\x1b[J")
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// append prints the trees below those of the last time.
func (s *shower) append(found *finding, first bool) error {
	at := time.Now()
	if !s.opt.json {
		if !first {
			fmt.Fprintln(s.Stdout)
		}
		fmt.Fprintln(s.Stdout, at.Format(time.RFC3339))
	}
	_, err := s.print(found, at.UTC().Format(time.RFC3339Nano))
	return err
}
