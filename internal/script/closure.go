package script

import (
	"fmt"
	"time"
)

// Guard says how the scripts guard against a Redis that forgets; see marker.lua. The zero Guard is none.
type Guard struct {
	MaxTTL  time.Duration // the longest ttl of any lock
	Deposed time.Duration // for how long a master that was deposed may go on granting
}

// IsSet reports whether there is a guard.
func (g Guard) IsSet() bool { return g.MaxTTL > 0 }

// Grace returns for how long the guard stays closed.
func (g Guard) Grace() time.Duration { return g.MaxTTL + g.Deposed }

// end returns the last of ARGV, as marker.lua wants it.
func (g Guard) end() string {
	deposed := (g.Deposed + time.Millisecond - 1).Milliseconds()
	return fmt.Sprintf("%d %d", g.MaxTTL.Milliseconds()+deposed, deposed)
}

// Closure is what a reply says about a guard that is closed. The zero Closure says that it is open, or that there is none.
type Closure struct {
	For  time.Duration // for how long nothing new is granted
	Term string        // the id of the server's present term; see marker.lua
}

// IsOver reports whether the guard is open.
func (c Closure) IsOver() bool { return c.For == 0 }

// readClosure reads the closure that begins at that index of a reply. It is zero if the reply ends before that. ok is false
// if no script replies that.
func readClosure(parts []any, at int) (c Closure, ok bool) {
	if len(parts) <= at {
		return Closure{}, true
	}
	if len(parts) < at+2 {
		return Closure{}, false
	}
	ms, _ := parts[at].(int64)
	term, _ := parts[at+1].(string)
	if ms <= 0 || term == "" {
		return Closure{}, false
	}
	return Closure{For: time.Duration(ms) * time.Millisecond, Term: term}, true
}

// isClosed reports whether a reply says {-2, closed, id}.
func isClosed(parts []any) bool { return len(parts) == 3 && parts[0] == int64(-2) }
