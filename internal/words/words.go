// Package words writes for people what locks are about: text from Redis, tokens, times and metadata.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redislock/redislock/internal/fault"
)

// Escape makes text safe to print on one line of a terminal: control characters, bytes that are not UTF-8, invisible
// characters, those that change the direction of text, and the backslash become what a Go string has for them. All that
// comes from Redis goes through Escape before it is printed.
func Escape(text string) string {
	return escape(text, func(r rune) bool { return r == '\\' || !Visible(r) })
}

// Printable is Escape for text in which keys are quoted already: it leaves backslashes unchanged.
func Printable(text string) string { return escape(text, func(r rune) bool { return !Visible(r) }) }

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

// Visible reports whether a character can be printed unchanged. The listed exceptions are letters that show as nothing.
func Visible(r rune) bool {
	switch r {
	case utf8.RuneError, 0x115f, 0x1160, 0x2800, 0x3164, 0xffa0:
		return false
	}
	return unicode.IsPrint(r)
}

// ShortToken returns the first characters of a token, safe to print. It never returns the whole token, with which anybody
// can release the lock.
func ShortToken(token string) string {
	short := fault.Short(token)
	if short == token {
		characters := []rune(token)
		short = string(characters[:len(characters)/2]) + "…"
	}
	return Escape(short)
}

// Duration writes a duration in two units at most, rounded down: 850ms, 9.8s, 42s, 4m12s, 2h03m, 3d04h.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// Seconds is Duration without parts of a second.
func Seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return Duration(d)
}

// Count writes a number of things.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
