package script

import (
	"fmt"
	"strings"

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
}

// Scripts makes the calls of the scripts. It never changes, and is safe for concurrent use.
type Scripts struct {
	obtain, release, refresh, pttl, fence, inspect, blocker, waiters *transport.Script
}

// New returns the scripts with these texts.
func New(s Sources) *Scripts {
	withLine := func(source string) string { return strings.Replace(source, "-- include line\n", s.Line, 1) }
	all := &Scripts{
		obtain:  transport.NewScript(withLine(s.Obtain)).Join(s.ObtainEach, 3),
		release: transport.NewScript(withLine(s.Release)).Join(s.ReleaseEach, 1),
		refresh: transport.NewScript(s.Refresh),
		pttl:    transport.NewScript(s.PTTL),
		fence:   transport.NewScript(s.Fence),
		inspect: transport.NewScript(s.Inspect),
		blocker: transport.NewScript(s.Blocker),
		waiters: transport.NewScript(s.Waiters),
	}
	all.obtain.Yields = true // a script that acquires locks must not hold up those that release or refresh them
	return all
}

// unexpected returns the error for a reply that no script of the library gives: another script has the same hash, or a
// wrapper of the Redis client has changed the reply.
func unexpected(reply any) error {
	return fmt.Errorf("unexpected reply %v (%[1]T)", reply)
}
