package script

import (
	"time"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// beatScript obeys no guard: it grants nothing.
var beatScript = transport.NewScript(complete(beatSource, Guard{}))

// Mark is what the mark of an inbox is to say in its lines.
type Mark struct {
	Life time.Duration // for how long its waiters are live from then on, in whole seconds
	Open bool          // its subscription is open, on this server

	// Waiters that have left may still stand there, and nobody takes them out. If the mark is made anew, they must not become
	// live again. A beat makes none.
	Left bool
}

func (m Mark) seconds() int { return int(m.Life / time.Second) }

// state returns what the scripts call the state.
func (m Mark) state() (sum int) {
	if m.Open {
		sum = 1
	}
	if m.Left {
		sum += 2
	}
	return sum
}

// Beat returns a call that keeps the waiters of an inbox live, in the lines of these keys. prolong makes the lines last as
// well, as each third beat must. left are ids of waiters that have left, and may still stand in line. Each key has a line.
func Beat(keys []string, inbox string, m Mark, prolong bool, left []string) *transport.Call {
	c := &transport.Call{Script: beatScript, Keys: make([]any, 0, 2*len(keys)), Token: inbox}
	for _, key := range keys {
		c.Keys = append(c.Keys, key)
	}
	for _, key := range keys {
		c.Keys = append(c.Keys, keyname.LineOf(key))
	}
	c.SetArgs(m.seconds(), m.state(), flag(prolong))
	for _, id := range left {
		c.Args = append(c.Args, id)
	}
	return c
}

// Beaten is the reply to a beat.
type Beaten struct {
	Served    int64         // when the script ran, in µs by the server's clock
	Listeners int64         // connections to this server that listen to the inbox; -1 if nobody can tell
	Silent    time.Duration // until the first mark ends of another inbox that is first in a line; negative for none
	Missing   []string      // keys in whose lines the inbox has no mark
	Firsts    []First
}

// First is a waiter that is first in some lines.
type First struct {
	Number string        // in its inbox
	Lines  int           // in how many lines it is first whose keys are free by now, or soon
	After  time.Duration // when the last of these is free
}

// ReadBeaten reads a reply of beat for these keys.
func ReadBeaten(keys []string, reply any) (Beaten, error) {
	parts, _ := reply.([]any)
	if len(parts) != 5 {
		return Beaten{}, unexpected(reply)
	}
	number := func(of any) int64 { n, _ := of.(int64); return n }
	milliseconds := func(of any) time.Duration { return time.Duration(number(of)) * time.Millisecond }
	b := Beaten{Served: number(parts[0]), Listeners: number(parts[1]), Silent: milliseconds(parts[2])}
	var ok bool
	if b.Missing, ok = keysAt(keys, parts[3]); !ok {
		return Beaten{}, unexpected(reply)
	}
	firsts, _ := parts[4].([]any)
	for i := 0; i+2 < len(firsts); i += 3 {
		name, _ := firsts[i].(string)
		b.Firsts = append(b.Firsts, First{Number: name, Lines: int(number(firsts[i+1])), After: milliseconds(firsts[i+2])})
	}
	return b, nil
}
