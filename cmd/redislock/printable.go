package main

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// printable is escape for text that has quoted keys in it already: it leaves backslashes as they are.
func printable(text string) string {
	bad := func(r rune) bool { return !visible(r) }
	if !strings.ContainsFunc(text, bad) {
		return text
	}
	var safe strings.Builder
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		if bad(r) {
			quoted := strconv.QuoteToASCII(text[:size])
			safe.WriteString(quoted[1 : len(quoted)-1])
		} else {
			safe.WriteString(text[:size])
		}
		text = text[size:]
	}
	return safe.String()
}
