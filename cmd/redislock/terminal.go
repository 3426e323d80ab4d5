package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// screen returns what can be shown where out leads: on a terminal its size and colours; in a file lines of any length,
// without colours.
func (e *environment) screen(out io.Writer) screen {
	s := screen{coloured: e.coloured(out)}
	if file, ok := out.(*os.File); ok {
		if columns, lines, err := term.GetSize(int(file.Fd())); err == nil {
			s.columns, s.lines = columns, lines
		}
	}
	return s
}
