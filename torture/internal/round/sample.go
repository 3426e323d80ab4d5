package round

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/clock"
	"github.com/redislock/redislock/torture/internal/topology"
	"github.com/redislock/redislock/torture/internal/worker"
)

// pause is the time between two samples.
const pause = 200 * time.Millisecond

// sample writes down what Redis holds, several times a second, until over is closed.
func (r *round) sample(over chan struct{}) {
	clients := map[string]*redis.Client{}
	defer func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}()
	var before []string
	last := clock.Now()
	for {
		start := clock.Now()
		before = r.watchRoles(clients, before, last)
		last = start
		held, whole := r.look(clients, false)
		if whole {
			r.log.Write(history.Event{
				Kind: history.Sample, Start: start, At: clock.Now(), Held: held, Need: int64(r.topology.Need()),
			})
		}
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
	}
}

// ping notes when a server answers late or not at all, until over is closed: a busy machine or disk is a fault as well. A
// quorum soon counts a server that does not answer as absent. If this process stands still, so do its proxies.
func (r *round) ping(s *redistest.Server, over chan struct{}) {
	const pause, slow = 20 * time.Millisecond, 70 * time.Millisecond
	client := topology.Connect(s)
	defer client.Close()
	before := clock.Now()         // the last answer
	last, isLate := before, false // the last one in time
	note := func(end int64) {
		if isLate {
			r.log.Write(history.Event{Kind: history.Fault, Name: "slow-server", At: last, End: end, Outcome: "noticed"})
		}
	}
	for {
		err := client.Ping(context.Background()).Err()
		now := clock.Now()
		if err != nil || clock.Sub(now, before) > pause+slow {
			isLate = true
		} else {
			note(now)
			last, isLate = now, false
		}
		before = now
		select {
		case <-over:
			note(clock.Now())
			return
		case <-time.After(pause):
		}
	}
}

// watchRoles returns the servers that hold keys. If other servers did before, a replica has taken over, and may lack
// writes. A busy machine can cause that without a planned fault, so watchRoles writes it down as a fault.
func (r *round) watchRoles(clients map[string]*redis.Client, before []string, last int64) []string {
	const around = int64(3 * time.Second) // the old master may have taken writes until the others noticed, and a moment longer
	var now []string
	for _, s := range r.topology.Holders() {
		now = append(now, s.Addr())
	}
	slices.Sort(now)
	if len(now) == 0 || len(now) < len(before) { // some server did not answer
		return before
	}
	if before != nil && !slices.Equal(before, now) && r.handovers.Load() == 0 {
		held, _ := r.look(clients, false)
		looked := clock.Now()
		r.log.Write(history.Event{
			Kind: history.Fault, Name: "role-change", At: last - around, End: looked + around, Lossy: true, Outcome: "noticed",
			Grace: r.grace, Held: held, Start: looked,
		})
	}
	return now
}

// look returns what all servers hold now, and whether all have answered. It returns lines and houses only if all is true,
// and never the counters of fencing tokens, nor the marker of a guard.
func (r *round) look(clients map[string]*redis.Client, all bool) (held []history.Held, whole bool) {
	holders := r.topology.Holders()
	whole = len(holders) > 0
	for i, s := range holders {
		client := clients[s.Addr()]
		if client == nil {
			client = topology.Connect(s)
			clients[s.Addr()] = client
		}
		found, err := topology.Look(context.Background(), client)
		if err != nil {
			whole = false
			continue
		}
		held = append(held, locks(found, i+1, all)...)
	}
	return held, whole
}

// locks returns the keys of locks that a server has, once for each holder, and, if all is true, those beside them. It always
// returns one beside them that has no expiry.
func locks(c topology.Content, server int, all bool) (held []history.Held) {
	for _, key := range slices.Sorted(maps.Keys(c.Keys)) {
		if strings.HasSuffix(key, worker.FenceSuffix) || key == keyname.GuardMarker {
			continue
		}
		if keyname.IsBeside(key) && !all && c.Keys[key][0].TTL >= 0 {
			continue
		}
		for _, s := range c.Keys[key] {
			token, _, _ := strings.Cut(s.Value, " ")
			held = append(held, history.Held{Key: key, Owner: owner(s.Value), Token: word(token), TTL: s.TTL, Server: server})
		}
	}
	return held
}

// owner returns the call that a value names in its metadata: "token op" or "token op|more".
func owner(value string) string {
	_, metadata, _ := strings.Cut(value, " ")
	op, _, _ := strings.Cut(metadata, "|")
	if !strings.Contains(op, "/") {
		return ""
	}
	return word(op)
}

// word replaces the characters that a history cannot hold.
func word(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == ',' || r == ';' {
			return '_'
		}
		return r
	}, text[:min(len(text), 200)])
}

// final waits until Redis holds nothing any more, but no longer than the longest ttl, and for lines than the longest of
// those. Then it writes down what is left. A line lasts longer if the beats of its waiters were answered late.
func (r *round) final() error {
	const longest, longestLine = 12 * time.Second, 54 * time.Second
	clients := map[string]*redis.Client{}
	defer func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}()
	isNoLine := func(h history.Held) bool { return !strings.HasSuffix(h.Key, keyname.LineSuffix) }
	for began := time.Now(); ; {
		held, whole := r.look(clients, true)
		limit := longest
		if whole && !slices.ContainsFunc(held, isNoLine) {
			limit = longestLine
		}
		if whole && len(held) == 0 || time.Since(began) > limit {
			e := history.Event{Kind: history.Final, At: clock.Now(), Held: held}
			if !whole {
				e.Name, e.Outcome = "look", "no-answer"
			}
			r.log.Write(e)
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}
