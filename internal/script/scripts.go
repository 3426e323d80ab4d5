package script

import (
	"fmt"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// Scripts makes the calls of the scripts. It never changes, and is safe for concurrent use.
type Scripts struct {
	Guard Guard

	obtain, release, refresh, pttl, fence, inspect, blocker, waiters *transport.Script
}

// New returns the scripts with these texts and this guard.
func New(s Sources, guard Guard) *Scripts {
	script := func(source string) *transport.Script { return transport.NewScript(complete(source, guard)) }
	all := &Scripts{
		Guard:   guard,
		obtain:  script(s.Obtain).Join(complete(obtainEachSource, guard), 3),
		release: script(s.Release).Join(complete(releaseEachSource, guard), 1),
		refresh: script(s.Refresh),
		pttl:    script(s.PTTL),
		fence:   script(fenceSource),
		inspect: script(inspectSource),
		blocker: script(blockerSource),
		waiters: script(waitersSource),
	}
	all.obtain.Yields = true // a script that acquires locks must not hold up those that release or refresh them
	if guard.IsSet() {
		for _, obeys := range []*transport.Script{all.obtain, all.release, all.refresh, all.inspect} {
			obeys.End(keyname.GuardMarker, guard.end())
		}
	}
	return all
}

// unexpected returns the error for a reply that no script of the library gives: another script has the same hash, or a
// wrapper of the Redis client has changed the reply.
func unexpected(reply any) error {
	return fmt.Errorf("unexpected reply %v (%[1]T)", reply)
}
