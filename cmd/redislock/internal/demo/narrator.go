package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// narrator prints a story: scenes, lines with the time and the speaker, tables, bars. It belongs to one goroutine.
type narrator struct {
	term.Screen // without a size: nothing is cut

	out    io.Writer
	start  time.Time
	number int         // of the scene
	broken func(error) // called when a write has failed
}

func newNarrator(out io.Writer, screen term.Screen, broken func(error)) *narrator {
	return &narrator{Screen: term.Screen{Coloured: screen.Coloured}, out: out, start: time.Now(), broken: broken}
}

var colours = map[string]string{checkout: term.Cyan, restock: term.Yellow, shop: term.Pink}

func (n *narrator) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(n.out, format, args...); err != nil {
		n.broken(err)
	}
}

func (n *narrator) title(text, where string) {
	n.printf("\n%s\n%s\n", n.Paint(term.Bold, text), n.Paint(term.Faint, where))
}

func (n *narrator) scene(title, text string) {
	n.number++
	n.printf("\n%s\n   %s\n\n", n.Paint(term.Bold, fmt.Sprintf("%d  %s", n.number, title)), n.Paint(term.Faint, text))
}

// says, gets and fails are a line each: a plain one, one of success and one of refusal.
func (n *narrator) says(who, format string, args ...any) {
	n.line(who, term.Plain, " ", format, args...)
}
func (n *narrator) gets(who, format string, args ...any) {
	n.line(who, term.Green, "✓", format, args...)
}
func (n *narrator) fails(who, format string, args ...any) {
	n.line(who, term.Red, "✗", format, args...)
}

func (n *narrator) line(who, colour, mark, format string, args ...any) {
	n.printf("%s  %s %s %s\n", n.Paint(term.Faint, fmt.Sprintf("%7.2f s", n.at(time.Now()))),
		n.Paint(colours[who], fmt.Sprintf("%-8s", who)),
		n.Paint(colour, mark), fmt.Sprintf(format, args...))
}

func (n *narrator) at(t time.Time) float64 { return t.Sub(n.start).Seconds() }

func seconds(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }

const barWidth = 25

func (n *narrator) bar(left, whole time.Duration) string {
	full := min(max(int(float64(barWidth)*left.Seconds()/whole.Seconds()+0.5), 0), barWidth)
	return n.Paint(term.Green, strings.Repeat("█", full)) + n.Paint(term.Faint, strings.Repeat("░", barWidth-full))
}

func (n *narrator) table(t *term.Table) {
	t.Columns = append([]term.Column{{Name: " "}}, t.Columns...)
	for i, cells := range t.Rows {
		t.Rows[i] = append([]term.Cell{{}}, cells...)
	}
	if err := t.Write(n.out, n.Screen, true); err != nil {
		n.broken(err)
	}
}
