// Package term shows text on a terminal or in a file: sizes, colours, tables, and text that is safe to print. It knows
// nothing of Redis, locks or commands.
package term

import (
	"cmp"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// Screen is what a stream can show: a terminal has a size and often colours, a file has neither.
type Screen struct {
	Columns, Lines int  // 0: without limit, as in a file
	Coloured       bool // ANSI colours may be used
	ASCII          bool // other characters may not show, because the terminal is not known to have UTF-8
}

// ScreenOf returns what can be shown on out. A terminal has colours unless it is dumb or the variable NO_COLOR is set.
func ScreenOf(out io.Writer, getenv func(string) string) Screen {
	if !Is(out) {
		return Screen{}
	}
	s := Screen{Coloured: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb", ASCII: !hasUTF8(getenv)}
	if columns, lines, err := term.GetSize(int(out.(*os.File).Fd())); err == nil {
		s.Columns, s.Lines = columns, lines
	}
	return s
}

// hasUTF8 reports whether the locale says that a terminal shows UTF-8. Windows has no such variables.
func hasUTF8(getenv func(string) string) bool {
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return runtime.GOOS == "windows" || strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// Is reports whether a stream is a terminal.
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

// Width returns how many columns of a terminal an escaped text takes.
func Width(text string) int { return runewidth.StringWidth(text) }

// Shorten cuts a text to a number of columns. An ellipsis replaces what it cuts off.
func Shorten(text string, columns int) string {
	if columns < 1 { // an ellipsis has no room either
		return ""
	}
	return runewidth.Truncate(text, columns, "…")
}

// shortenMiddle is Shorten for names: the ellipsis replaces what is in the middle.
func shortenMiddle(text string, columns int) string {
	cut := Width(text) - columns + 1 // and one for the ellipsis
	if cut <= 1 || columns < 3 {
		return Shorten(text, columns)
	}
	tail := runewidth.TruncateLeft(text, columns/2+cut, "")
	return Shorten(text, columns-Width(tail)) + tail
}

// breakWords divides a text after the last word that ends within so many columns. A longer word is divided itself.
func breakWords(text string, columns int) (line, rest string) {
	if Width(text) <= columns {
		return text, ""
	}
	line = runewidth.Truncate(text, columns, "")
	if end := strings.LastIndexByte(text[:len(line)+1], ' '); end > 0 {
		line = text[:end]
	}
	return line, strings.TrimPrefix(text[len(line):], " ")
}
