package script

import (
	"strconv"
	"strings"
	"time"
)

// Message is what a script has published for one waiter.
type Message struct {
	Kind  Kind
	After time.Duration // of Taken: for how long
	At    int64         // of HandedOver and Marked: when, by the server's clock, in µs
	Fence int64         // of HandedOver: the fencing token; 0 for none
	Lines []int         // of Marked: in which of its lines, from 0 on
}

// Kind is the kind of a Message.
type Kind int

// The kinds of messages.
const (
	Turn       Kind = iota // it may be the waiter's turn, so the waiter tries
	Taken                  // another caller has taken the keys for a while
	HandedOver             // the waiter holds the keys
	Marked                 // a call of the waiter has made marks of its inbox, because there were none in some of its lines
)

// The words in the messages of the scripts, as in line.lua, release.lua and obtain.lua. The waiter's number comes first.
const (
	wordAfter   = "after"   // with a ttl in ms
	wordGranted = "granted" // with the time and the fencing token
	wordMarked  = "marked"  // with the time, and the lines
)

// ReadMessage reads the words of a message after the waiter's number. Unknown words mean Turn, because a try is never wrong.
func ReadMessage(words string) Message {
	word, rest, _ := strings.Cut(words, " ")
	switch first, second, _ := strings.Cut(rest, " "); word {
	case wordAfter:
		if ms, err := strconv.ParseInt(first, 10, 64); err == nil {
			return Message{Kind: Taken, After: time.Duration(ms+1) * time.Millisecond}
		}
	case wordMarked:
		at, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			break
		}
		m := Message{Kind: Marked, At: at}
		for digits := range strings.FieldsSeq(second) {
			if i, err := strconv.Atoi(digits); err == nil && i > 0 {
				m.Lines = append(m.Lines, i-1)
			}
		}
		return m
	case wordGranted:
		at, err := strconv.ParseInt(first, 10, 64)
		fence, bad := strconv.ParseInt(second, 10, 64)
		if err == nil && bad == nil {
			return Message{Kind: HandedOver, At: at, Fence: fence}
		}
	}
	return Message{}
}
