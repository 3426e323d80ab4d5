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
	At    int64         // of HandedOver: when, by the server's clock, in µs
	Fence int64         // of HandedOver: the fencing token; 0 for none
}

// Kind is the kind of a Message.
type Kind int

// The kinds of messages.
const (
	Turn       Kind = iota // it may be the waiter's turn, so the waiter tries
	Taken                  // another caller has taken the keys for a while
	HandedOver             // the waiter holds the keys
)

// The words in the messages of the scripts, as in line.lua, release.lua and obtain.lua. The waiter's number comes first.
const (
	wordAfter   = "after"   // with a ttl in ms
	wordGranted = "granted" // with the time and the fencing token
)

// ReadMessage reads the words of a message after the waiter's number. Unknown words mean Turn, because a try is never wrong.
func ReadMessage(words string) Message {
	word, rest, _ := strings.Cut(words, " ")
	switch first, second, _ := strings.Cut(rest, " "); word {
	case wordAfter:
		if ms, err := strconv.ParseInt(first, 10, 64); err == nil {
			return Message{Kind: Taken, After: time.Duration(ms+1) * time.Millisecond}
		}
	case wordGranted:
		at, err := strconv.ParseInt(first, 10, 64)
		fence, bad := strconv.ParseInt(second, 10, 64)
		if err == nil && bad == nil {
			return Message{Kind: HandedOver, At: at, Fence: fence}
		}
	}
	return Message{}
}
