package screen

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Line is one line of a terminal that is redrawn in place, while something else is waited for.
type Line struct {
	tty    *os.File
	getenv func(string) string
	text   func() string

	mu    sync.Mutex // protects the terminal, and whether the line is on it
	drawn bool

	over, done chan struct{}
}

const (
	clearBelow = "\x1b[J" // from the cursor on, which includes the rest of its line
	tick       = time.Second
)

// ShowLine draws what text returns, which is safe to print, once a second and after each change of the size, until End. It
// draws only while this process has the terminal. A goroutine does all that, because a terminal may block.
func ShowLine(tty *os.File, getenv func(string) string, text func() string) *Line {
	l := &Line{tty: tty, getenv: getenv, text: text, over: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		resized, again := job.Resizes(), time.NewTicker(tick)
		defer signal.Stop(resized)
		defer again.Stop()
		for {
			l.draw()
			select {
			case <-resized:
			case <-again.C:
			case <-l.over:
				return
			}
		}
	}()
	return l
}

// draw leaves the cursor at the beginning of the line. Some terminals break a line in two when they get narrower, and move
// the cursor with its text: so it is still at the beginning, and all of the line is below it. The last column stays empty,
// because a terminal may count a cursor beyond it as in it, and would clear it.
func (l *Line) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over: // a Print was late
		return
	default:
	}
	if job.InBackground(l.tty) {
		l.drawn = false // what other jobs write stands below
		return
	}
	text := l.text()
	if columns := term.ScreenOf(l.tty, l.getenv).Columns; columns > 0 {
		text = term.Shorten(text, columns-1)
	}
	l.drawn = true
	_, _ = l.tty.WriteString("\r" + text + clearBelow + "\r")
}

// Print prints a text of whole lines, and draws the line below it.
func (l *Line) Print(text string) {
	l.clear(text)
	l.draw()
}

// End removes the line, and prints a text in its place, which may be "".
func (l *Line) End(text string) {
	close(l.over)
	<-l.done
	l.clear(text)
}

func (l *Line) clear(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drawn && !job.InBackground(l.tty) {
		text = "\r" + clearBelow + text
	}
	l.drawn = false
	_, _ = l.tty.WriteString(text)
}
