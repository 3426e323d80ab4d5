package fault

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text that another process has stored. It quotes text that could forge log lines or control a
// terminal.
func Printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

// Short returns the first characters of a token: those that may be shown.
func Short(token string) string {
	const most = 6 // characters
	count := 0
	for at := range token {
		if count == most {
			return token[:at] + "…"
		}
		count++
	}
	return token
}
