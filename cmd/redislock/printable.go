package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable returns text with everything escaped that is not to reach a terminal from a database: control characters,
// invalid UTF-8, and what is invisible or changes the direction of the text. The backslash of an escape is not itself
// escaped, so that text in common use stays as it is.
func printable(text string) string {
	bad := func(r rune) bool { return r == utf8.RuneError || r != ' ' && !unicode.IsPrint(r) }
	if strings.IndexFunc(text, bad) < 0 {
		return text
	}
	var safe strings.Builder
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 || bad(r) {
			quoted := strconv.QuoteToASCII(text[:size])
			safe.WriteString(quoted[1 : len(quoted)-1])
		} else {
			safe.WriteString(text[:size])
		}
		text = text[size:]
	}
	return safe.String()
}
