package script

import (
	"fmt"
	"strings"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// Sources are the texts of the scripts.
type Sources struct {
	Obtain, ObtainEach   string
	Release, ReleaseEach string
	Refresh, PTTL, Fence string
	Inspect, Blocker     string
	Waiters              string
	Line                 string // the rules of the line, which obtain and release include
	Guard                string // the check of a guard, which all scripts include that obey one
}

// Scripts makes the calls of the scripts. It never changes, and is safe for concurrent use.
type Scripts struct {
	Guard Guard

	obtain, release, refresh, pttl, fence, inspect, blocker, waiters *transport.Script
}

// New returns the scripts with these texts and this guard.
func New(s Sources, guard Guard) *Scripts {
	if !guard.IsSet() {
		s.Guard = ""
	}
	script := func(source string) *transport.Script { return transport.NewScript(s.included(source)) }
	all := &Scripts{
		Guard:   guard,
		obtain:  script(s.Obtain).Join(s.included(s.ObtainEach), 3),
		release: script(s.Release).Join(s.included(s.ReleaseEach), 1),
		refresh: script(s.Refresh),
		pttl:    script(s.PTTL),
		fence:   script(s.Fence),
		inspect: script(s.Inspect),
		blocker: script(s.Blocker),
		waiters: script(s.Waiters),
	}
	all.obtain.Yields = true // a script that acquires locks must not hold up those that release or refresh them
	if guard.IsSet() {
		for _, obeys := range []*transport.Script{all.obtain, all.release, all.refresh, all.inspect} {
			obeys.End(keyname.GuardMarker, guard.end())
		}
	}
	return all
}

// included returns the text of a script with the texts that it includes.
func (s *Sources) included(source string) string {
	source = strings.Replace(source, "-- include line\n", s.Line, 1)
	return strings.Replace(source, "-- include guard\n", s.Guard, 1)
}

// unexpected returns the error for a reply that no script of the library gives: another script has the same hash, or a
// wrapper of the Redis client has changed the reply.
func unexpected(reply any) error {
	return fmt.Errorf("unexpected reply %v (%[1]T)", reply)
}
