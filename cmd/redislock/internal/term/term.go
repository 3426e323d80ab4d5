// Package term shows text on a terminal or in a file: sizes, colours, tables, and text that is safe to print. It knows
// nothing of Redis, locks or commands.
package term

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Screen is what a stream can show: a terminal has a size and often colours, a file has neither.
type Screen struct {
	Columns, Lines int  // 0: without limit, as in a file
	Coloured       bool // ANSI colours may be used
}

// ScreenOf returns what can be shown on out. A terminal has colours unless it is dumb or the variable NO_COLOR is set.
func ScreenOf(out io.Writer, getenv func(string) string) Screen {
	if !Is(out) {
		return Screen{}
	}
	s := Screen{Coloured: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if columns, lines, err := term.GetSize(int(out.(*os.File).Fd())); err == nil {
		s.Columns, s.Lines = columns, lines
	}
	return s
}

func Is(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// The colours: ANSI codes that are readable on dark and on light backgrounds.
const (
	Plain  = ""
	Bold   = "1"
	Faint  = "2"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Pink   = "35"
	Cyan   = "36"
)

// Paint colours a text if the screen has colours.
func (s Screen) Paint(colour, text string) string {
	if !s.Coloured || colour == Plain || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
