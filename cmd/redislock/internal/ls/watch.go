package ls

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// watch shows the locks again and again, until ctx ends; that is not a failure. On a terminal it uses the alternate screen,
// and restores the normal one at the end. Elsewhere it prints one table after the other. After the first success it reports
// a Redis that fails, and asks again.
func (l *lister) watch(ctx context.Context) error {
	live := term.Is(l.Stdout) && !l.opt.json
	resumed := make(chan struct{}, 1)
	if live {
		fmt.Fprint(l.Stdout, enterScreen)
		defer fmt.Fprint(l.Stdout, leaveScreen)
		end := job.AroundStops(
			func() { fmt.Fprint(l.Stdout, leaveScreen) },
			func() {
				fmt.Fprint(l.Stdout, enterScreen)
				select {
				case resumed <- struct{}{}:
				default:
				}
			})
		defer end()
	}
	for first := true; ; first = false {
		all, err := l.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		}
		if live {
			err = l.redraw(all, err)
		} else {
			err = l.append(all, err, first)
		}
		if err != nil {
			return err
		}
		timer := time.NewTimer(l.opt.watch)
		select {
		case <-timer.C:
		case <-resumed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// redraw fills the terminal anew. It does not clear it first, because that would flicker.
func (l *lister) redraw(all *collection, failed error) error {
	s := l.Screen()
	title := fmt.Sprintf("%s   %d locks   every %v, Ctrl-C ends", time.Now().Format(time.TimeOnly), len(all.kept), l.opt.watch)
	colour := term.Faint
	if failed != nil {
		title, colour = time.Now().Format(time.TimeOnly)+"   "+term.Printable(failed.Error()), term.Red
	}
	room := len(all.kept)
	if s.Lines > 0 {
		room = max(0, min(room, s.Lines-4)) // without the title, an empty line, the head and the line below
	}
	var out bytes.Buffer
	if s.Columns > 0 {
		title = term.Shorten(title, s.Columns)
	}
	out.WriteString(s.Paint(colour, title) + "\n\n")
	if err := l.print(&out, s, all.kept[:room], ""); err != nil {
		return err
	}
	if more := len(all.kept) - room + all.dropped; more > 0 {
		out.WriteString(s.Paint(term.Faint, fmt.Sprintf("… and %d more", more)))
	}
	text := strings.ReplaceAll(out.String(), "\n", clearLine+"\n")
	_, err := fmt.Fprint(l.Stdout, homeCursor, text, clearLine, clearBelow)
	return err
}

// append prints the locks below those of the last time.
func (l *lister) append(all *collection, failed error, first bool) error {
	if failed != nil {
		l.Complain(failed)
		return nil
	}
	at := time.Now()
	if !l.opt.json {
		if !first {
			fmt.Fprintln(l.Stdout)
		}
		fmt.Fprintln(l.Stdout, at.Format(time.RFC3339))
	}
	return l.print(l.Stdout, l.Screen(), all.kept, at.UTC().Format(time.RFC3339Nano))
}
