package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/marker"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/words"
)

const (
	lastGrant = 2 * time.Second // how long after min-replicas-max-lag a deposed master may still grant; 0.7 s were measured
	scanLimit = 1000            // how many locks doctor compares with the guard
	scanTime  = 2 * time.Second // and for how long it looks for them
)

// guard checks what the guard of a server needs, and what makes it close needlessly. If there is none, it says only that.
func (d *doctor) guard(ctx context.Context, server *redis.Client, f facts) []finding {
	m, err := marker.Read(ctx, server)
	flags, guard := d.target.Guard, d.target.Guard.Over(m.Lengths)
	const other = "if other programs lock with a guard here, those of this user must do so as well"
	switch {
	case err != nil:
		return []finding{isUnknown.says("the marker cannot be read ("+plainly(err)+")", other,
			d.grant("~"+keyname.GuardMarker)).as("guard")}
	case m.Text == "" && flags.MaxTTL == 0:
		return []finding{ok("none: no program with a guard has locked here").as("guard")}
	}
	all := []finding{guardState(m, d).as("guard")}
	if m.State() == marker.Replica || m.State() == marker.Unknown || guard.MaxTTL == 0 {
		return all
	}
	if m.Grace > 0 && (guard.MaxTTL != m.MaxTTL() || guard.Deposed != m.Deposed) {
		all = append(all, isWarning.says(fmt.Sprintf("it has a maxTTL of %v and a deposed of %v, and the flags say %v and %v",
			m.MaxTTL(), m.Deposed, guard.MaxTTL, guard.Deposed),
			"if programs have different guards, the one with the longest locks is not safe from the others",
			"use the same WithGuard, --max-ttl and --deposed in all programs").as("guard length"))
	}
	if e := f.eviction(); e.Status == isBad {
		all = append(all, isBad.says(e.Found, "the guard does not notice that a lock is evicted; if its marker is, it closes",
			e.Do).as("guard eviction"))
	}
	all = append(all, f.deposed(guard.Deposed).as("guard deposed"), f.backlog().as("guard backlog"))
	return append(all, d.longLocks(ctx, server, guard.MaxTTL).as("guard ttls"))
}

// guardState says what the guard does now.
func guardState(m marker.Marker, d *doctor) finding {
	closes := words.Duration(m.Grace)
	switch m.State() {
	case marker.Unknown:
		return isBad.says("this user does not see the master_replid in INFO replication",
			"a guard needs it, so nothing can be locked", d.grant("+info"))
	case marker.Replica:
		return ok("that of its master")
	case marker.None:
		return isWarning.says("not there yet", "the first lock closes it", "wait for that, or run redislock guard open")
	case marker.Closing:
		return isWarning.says("of another term of the server",
			"Redis may have forgotten locks: the next lock closes the guard for "+closes,
			"wait; or, if it has kept all its data, run redislock guard open")
	case marker.Closed:
		return isWarning.says("closed for another "+words.Duration(m.Left),
			"Redis may have forgotten locks, and grants none until then",
			"wait; or, if it has kept all its data, run redislock guard open")
	}
	return ok("open; it closes for %s: maxTTL %v, deposed %v", closes, m.MaxTTL(), m.Deposed)
}

// deposed checks that a master whose place a replica has taken stops to grant within that limit.
func (f facts) deposed(limit time.Duration) finding {
	replicas, err := strconv.Atoi(f.info["connected_slaves"])
	least, _ := strconv.Atoi(f.config["min-replicas-to-write"])
	lag, lagErr := strconv.Atoi(f.config["min-replicas-max-lag"])
	found := fmt.Sprintf("%d replicas, min-replicas-to-write %d, min-replicas-max-lag %d", replicas, least, lag)
	longest := time.Duration(lag)*time.Second + lastGrant
	const why = "a master whose place a replica has taken grants locks for longer than the guard closes for"
	switch {
	case err != nil:
		return isUnknown.says("it does not say whether it has replicas", "with replicas, a guard needs deposed",
			"ask an administrator for the output of INFO replication")
	case replicas == 0:
		return ok("no replica can take its place")
	case lagErr != nil:
		return isUnknown.says(fmt.Sprintf("%d replicas; it does not say its min-replicas-to-write", replicas), why,
			"ask an administrator for the output of CONFIG GET min-replicas-*")
	case least < replicas || lag == 0:
		return isWarning.says(found, why+": nothing but a Sentinel stops it", fmt.Sprintf("on each server, "+
			"CONFIG SET min-replicas-to-write %d, CONFIG SET min-replicas-max-lag 1, then CONFIG REWRITE; "+
			"and use a deposed of 3s", replicas))
	case longest > limit:
		return isWarning.says(fmt.Sprintf("%s, deposed %v", found, limit), fmt.Sprintf("%s; here up to %v", why, longest),
			fmt.Sprintf("on each server, CONFIG SET min-replicas-max-lag 1, then CONFIG REWRITE; and use a deposed of %v",
				lastGrant+time.Second))
	}
	return ok("%s; within the %v of deposed", found, limit)
}

// backlog checks that a master keeps its term while it has no replica.
func (f facts) backlog() finding {
	seconds, err := strconv.Atoi(f.config["repl-backlog-ttl"])
	switch {
	case err != nil, f.info["repl_backlog_active"] != "1", seconds == 0:
		return ok("the term of the server does not end when it has no replicas")
	}
	return isWarning.says(fmt.Sprintf("repl-backlog-ttl is %d", seconds),
		"without a replica for so many seconds, a new term begins, and the guard closes needlessly",
		"CONFIG SET repl-backlog-ttl 0, then CONFIG REWRITE")
}

// longLocks looks for locks that outlast the guard.
func (d *doctor) longLocks(ctx context.Context, server *redis.Client, limit time.Duration) finding {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	seen, long, key := 0, 0, ""
	locks := redislock.New(server)
	defer func() { _ = locks.Close() }()
	here := survey.Of(locks, server)
	s := survey.Scan{Redis: here, Found: func(s survey.Status) error {
		if seen++; s.TTL > limit {
			long, key = long+1, s.Key
		}
		if seen == scanLimit {
			return survey.ErrEnough
		}
		return nil
	}}
	err := s.Run(ctx)
	const why = "the guard opens before such a lock ends, so a second holder can get it after Redis has forgotten it"
	switch {
	case long > 0:
		return isBad.says(fmt.Sprintf("%d of %d locks last longer than %v, such as %s", long, seen, limit, words.Escape(key)), why,
			"lock with a guard in all programs, with the same maxTTL; raise it if they need such locks")
	case err != nil && ctx.Err() == nil:
		return isUnknown.says("the keys cannot be listed ("+plainly(err)+")",
			strings.Replace(why, "such a lock", "a longer lock", 1), d.grant("+scan"))
	}
	return ok("none of %d locks lasts longer than %v", seen, limit)
}
