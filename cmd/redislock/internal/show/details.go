package show

import (
	"fmt"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/words"
)

// sayMetadata says what the one holder of a lock has left.
func sayMetadata(say func(what, text string), metadata string) {
	if fields, ok := words.Fields(metadata); ok {
		for _, f := range fields {
			say(words.Escape(f.Name), words.Escape(f.Value))
		}
	} else if metadata != "" {
		say("metadata", words.Escape(metadata))
	}
	if since := OwnerOf(metadata).Since; !since.IsZero() {
		say("held", "for "+words.Duration(max(time.Since(since), 0)))
	}
}

// sayHolders says who holds a shared key.
func sayHolders(say func(what, text string), s redislock.Status) {
	say("shared", Count(s))
	for _, h := range s.Holders {
		say("holder", Sharer(h))
	}
	if more := s.HolderCount - len(s.Holders); more > 0 {
		say("", fmt.Sprintf("… and %d more", more))
	}
}

// maxProcesses is how many waiting processes are shown to people. JSON has them all.
const maxProcesses = 10

// Details are all that is known of a key.
type Details struct {
	Status redislock.Status
	Line   []redislock.Waiter
	Now    time.Time // of the server
}

// Name returns the line above the table.
func (d Details) Name(s term.Screen) string { return s.Paint(term.Bold, words.Escape(d.Status.Key)) }

// Table returns what is known of the key and its line.
func (d Details) Table() *term.Table {
	s := d.Status
	t := &term.Table{Columns: []term.Column{{}, {}, {Fit: term.Wrap}}} // the first is the margin
	say := func(what, text string) { t.Add("", what, text) }
	switch {
	case Split(s) != "":
		say("split", Split(s))
	case s.TTL == 0 && s.Waiters > 0:
		say("free", "for the first in line")
	case s.TTL == 0:
		say("free", "")
	case s.HolderCount > 0:
		sayHolders(say, s)
	case s.Token == "":
		say("taken", "by something that is not a lock")
		sayMetadata(say, s.Metadata)
	default:
		say("token", words.Escape(s.Token))
		sayMetadata(say, s.Metadata)
	}
	if s.TTL != 0 {
		say("left", TTL(s.TTL))
	}
	if len(s.Waits) > 0 {
		say("waits", itself(s.Waits))
	}
	what := "servers"
	for _, place := range s.Places {
		held := "free"
		switch {
		case place.TTL == 0:
		case place.Token == "":
			held = "taken by something that is not a lock"
		default:
			held = words.Escape(place.Token) + ", " + TTL(place.TTL) + " left"
		}
		say(what, place.Server+": "+held)
		what = ""
	}
	waiting := ByProcess(d.Line)
	switch {
	case s.Waiters > 0:
		count := fmt.Sprint(s.Waiters)
		if len(waiting) > 1 {
			count += fmt.Sprintf(" from %d processes", len(waiting))
		}
		say("in line", count+", the first for "+words.Duration(max(d.Now.Sub(s.WaitingSince), 0)))
	case s.TTL != 0:
		say("in line", "nobody")
	}
	for i, p := range waiting {
		if i == maxProcesses {
			say("", fmt.Sprintf("… and %d more", len(waiting)-i))
			break
		}
		say("", p.String()+": "+p.Waiting(d.Now))
	}
	return t
}
