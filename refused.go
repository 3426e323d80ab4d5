package redislock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// RefusedError is the refusal of an obtain with [Options.Explain]: it says what is in the way. It matches
// [ErrNotObtained]. Token, Metadata and TTL are those of the first key that another token holds. Where no key is held,
// because it is the turn of others who wait in line, Key is the first for which somebody waits. Key is "" if nothing was
// in the way any more when the library asked, or if Redis did not answer.
type RefusedError struct {
	Key      string
	Token    string        // the holder; "" if nobody holds Key. Show a few characters at most: it is a key to the lock
	Metadata string        // what the holder left
	TTL      time.Duration // what remains of the hold; -1 for a key without expiry, 0 if nobody holds Key
	Ahead    int           // how many wait in line for Key before this call
}

// Error names the key and its holder, by the first six characters of the token.
func (e *RefusedError) Error() string {
	if e.Key == "" {
		return ErrNotObtained.Error()
	}
	if e.Token == "" && e.TTL == 0 {
		return fmt.Sprintf("%v: others wait in line for %q, %d of them before this call", ErrNotObtained, e.Key, e.Ahead)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%v: %q is held", ErrNotObtained, e.Key)
	if e.Token != "" {
		fmt.Fprintf(&text, " by %s", printable(short(e.Token)))
	}
	if e.Metadata != "" {
		fmt.Fprintf(&text, " (%s)", printable(e.Metadata))
	}
	if e.TTL < 0 {
		text.WriteString(" without expiry")
	} else {
		fmt.Fprintf(&text, " for %v more", e.TTL)
	}
	if e.Ahead > 0 {
		fmt.Fprintf(&text, ", %d ahead in line", e.Ahead)
	}
	return text.String()
}

// Is reports whether target is ErrNotObtained.
func (e *RefusedError) Is(target error) bool { return target == ErrNotObtained }

// printable quotes text of another process that could forge lines of a log, or control a terminal.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}
