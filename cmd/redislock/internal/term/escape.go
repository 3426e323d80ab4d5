package term

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Escape makes text safe to print on one line of a terminal. It writes control characters, bytes that are not UTF-8,
// invisible characters and those that change the direction of text as a Go string has them. It does the same to the
// backslash, so that different texts stay different. Everything that comes from Redis goes through it before it is printed.
func Escape(text string) string {
	return escape(text, func(r rune) bool { return r == '\\' || !Visible(r) })
}

// Printable is Escape for text in which keys are quoted already: it leaves backslashes unchanged.
func Printable(text string) string {
	return escape(text, func(r rune) bool { return !Visible(r) })
}

func escape(text string, unsafe func(rune) bool) string {
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var out strings.Builder
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case !unsafe(r):
			out.WriteString(text[:size])
		case r < ' ' && !strings.ContainsRune("\t\n\r", r): // Go would write \a, \b, \v and \f, which few people know
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			quoted := strconv.QuoteToASCII(text[:size])
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return out.String()
}

// Visible reports whether a character can be printed unchanged. The exceptions listed here are letters or symbols in
// Unicode, but show as nothing.
func Visible(r rune) bool {
	switch r {
	case utf8.RuneError, 0x115f, 0x1160, 0x2800, 0x3164, 0xffa0:
		return false
	}
	return unicode.IsPrint(r)
}

// Width returns how many columns of a terminal an escaped text takes.
func Width(text string) int {
	columns := 0
	for _, r := range text {
		columns += columnsOfRune(r)
	}
	return columns
}

func columnsOfRune(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Shorten cuts a text to a number of columns. An ellipsis replaces what it cuts off.
func Shorten(text string, columns int) string {
	if Width(text) <= columns {
		return text
	}
	if columns < 1 {
		return ""
	}
	taken := 0
	for i, r := range text {
		taken += columnsOfRune(r)
		if taken > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// shortenMiddle is Shorten for names: the ellipsis replaces what is in the middle.
func shortenMiddle(text string, columns int) string {
	if Width(text) <= columns || columns < 3 {
		return Shorten(text, columns)
	}
	tail, taken := len(text), 0
	for tail > 0 {
		r, size := utf8.DecodeLastRuneInString(text[:tail])
		if taken += columnsOfRune(r); taken > (columns-1)/2 {
			break
		}
		tail -= size
	}
	head := Shorten(text, columns-Width(text[tail:])) // with the ellipsis
	return head + text[tail:]
}

// breakWords divides a text after the last word that ends within so many columns. A longer word is divided itself.
func breakWords(text string, columns int) (line, rest string) {
	if Width(text) <= columns {
		return text, ""
	}
	end, word, taken := 0, 0, 0 // how much fits, also by whole words
	for i, r := range text {
		if taken += columnsOfRune(r); taken > columns+1 || taken > columns && r != ' ' {
			break
		}
		if end = i + utf8.RuneLen(r); r == ' ' {
			word = end
		}
	}
	if word > 0 {
		end = word
	}
	return strings.TrimRight(text[:end], " "), text[end:]
}
