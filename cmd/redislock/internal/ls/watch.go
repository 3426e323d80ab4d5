package ls

import (
	"bytes"
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

// watch prints the locks again and again, until ctx ends, or somebody presses q. On a terminal it uses the alternate screen.
// After the first success it reports a Redis that fails, and asks again.
func (l *lister) watch(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	live := term.Is(l.Stdout) && l.opt.format == asTable
	var resized, stopped chan os.Signal
	var endKeys func()
	enter := func() {
		fmt.Fprint(l.Stdout, enterScreen)
		endKeys = job.ReadKeys(func(key byte) {
			if key == 'q' || key == 'Q' {
				end(errQuit)
			}
		})
	}
	leave := func() {
		endKeys() // before the normal screen is back: what is typed there is for the shell
		fmt.Fprint(l.Stdout, leaveScreen)
	}
	if live {
		resized, stopped = job.Resizes(), job.Stops()
		enter()
		defer leave()
	}
	for first := true; ; first = false {
		all, err := l.look(ctx)
		switch {
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), errQuit):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && first:
			return err
		case live:
			err = l.redraw(all, err)
		default:
			err = l.append(all, err, first)
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(l.opt.watch):
		case <-resized:
		case <-stopped:
			leave()
			job.Suspend()
			enter()
		case <-ctx.Done():
		}
	}
}

var errQuit = errors.New("q")

// redraw fills the terminal anew, and no more than it has room for. It does not clear it first, because that would flicker.
func (l *lister) redraw(all *collection, failed error) error {
	s := l.Screen()
	count := fmt.Sprintf("%d locks", len(all.kept))
	switch {
	case len(all.kept) == 1:
		count = "1 lock"
	case all.first && len(all.kept) == l.opt.limit:
		count = fmt.Sprintf("%d+ locks", len(all.kept))
	}
	title := fmt.Sprintf("%s  %s, q ends, every %v", time.Now().Format(time.TimeOnly), count, l.opt.watch)
	colour := term.Faint
	if failed != nil {
		title, colour = time.Now().Format(time.TimeOnly)+"   "+term.Printable(failed.Error()), term.Red
	}
	columns, height := cmp.Or(s.Columns, math.MaxInt), cmp.Or(s.Lines, math.MaxInt)
	room := min(len(all.kept), max(0, height-4)) // without the title, an empty line, the head and the line below
	var out bytes.Buffer
	out.WriteString(s.Paint(colour, term.Shorten(title, columns)) + "\n\n")
	if err := l.print(&out, s, all.kept[:room], ""); err != nil {
		return err
	}
	if hidden := len(all.kept) - room + all.dropped; hidden > 0 {
		out.WriteString(s.Paint(term.Faint, fmt.Sprintf("… and %d more", hidden)))
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	// From the top, clear the rest of each line, and in the end what is below.
	_, err := fmt.Fprint(l.Stdout, "\x1b[H", strings.Join(lines, "\x1b[K\n"), "\x1b[K\x1b[J")
	return err
}

// append prints the locks below those of the last time.
func (l *lister) append(all *collection, failed error, first bool) error {
	if failed != nil {
		l.Complain(failed)
		return nil
	}
	at := time.Now()
	if l.opt.format == asTable {
		if !first {
			fmt.Fprintln(l.Stdout)
		}
		fmt.Fprintln(l.Stdout, at.Format(time.RFC3339))
	}
	return l.print(l.Stdout, l.Screen(), all.kept, at.UTC().Format(time.RFC3339Nano))
}
