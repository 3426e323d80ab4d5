package topology

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/worker"
)

const places = 5

// quorum is several independent servers. They keep over a restart what they acknowledged, unless the fault says otherwise.
type quorum struct {
	guard   worker.Guard
	servers []*redistest.Server
}

func startQuorum(guard worker.Guard) (Topology, error) {
	t := &quorum{guard: guard, servers: make([]*redistest.Server, places)}
	errs := make([]error, places)
	var wg sync.WaitGroup
	for i := range places {
		wg.Go(func() {
			t.servers[i], errs[i] = redistest.Start("appendonly yes", "appendfsync always", "auto-aof-rewrite-percentage 0")
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *quorum) Endpoint() worker.Endpoint {
	return worker.Endpoint{Topology: "quorum", Addrs: addrs(t.servers), Guard: t.guard}
}

func (t *quorum) Servers() []*redistest.Server { return t.servers }
func (t *quorum) Holders() []*redistest.Server { return t.servers }

func (t *quorum) Inject(ctx context.Context, f plan.Fault) (Harm, error) {
	switch f.Kind {
	case plan.FlushAll, plan.RestartOld:
		return forget(ctx, t.servers[f.Pick%places], f)
	case plan.ForgetServer:
		if t.guard.MaxTTL > 0 { // then nothing is excused
			f.Kind = plan.RestartEmpty
			return forget(ctx, t.servers[f.Pick%places], f)
		}
		return t.forget(ctx, f)
	case plan.ForgetMany:
		return harm(true), t.forgetMany(ctx, f)
	}
	return Harm{}, single(ctx, t.servers[f.Pick%places], f)
}

// forget restarts a server without its data. If fewer than a majority of the other servers hold a key, or if they hold it
// for less long, a bare majority held it, and one server that forgets can break that. A request that the server has
// answered may still be under way to the others, so forget asks them more than once. They may also have released a key that
// the server still holds, because it executes nothing any more.
func (t *quorum) forget(ctx context.Context, f plan.Fault) (Harm, error) {
	victim := t.servers[f.Pick%places]
	held, err := stop(victim)
	unknown := err != nil // another fault has stopped it before
	if unknown {
		err = victim.Pause()
	}
	bare := map[string]bool{}
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		time.Sleep(pause)
		for _, key := range t.bare(victim, held) {
			bare[key] = true
		}
		if pause == 0 {
			held = Content{}
			err = errors.Join(err, victim.Kill(), victim.Forget())
		}
	}
	wait(ctx, f.For)
	return Harm{Everything: unknown, Keys: slices.Sorted(maps.Keys(bare))}, errors.Join(err, victim.Restart())
}

// stop makes a server execute nothing any more, and returns what it has.
func stop(s *redistest.Server) (Content, error) {
	client := Connect(s)
	defer client.Close()
	ctx := context.Background()
	var answer *redis.Cmd
	_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		answer = askAll(ctx, p)
		return p.Do(ctx, "client", "pause", time.Minute.Milliseconds()).Err()
	})
	if err != nil {
		return Content{}, err
	}
	return content(answer)
}

// bare returns the keys that fewer servers than a majority would hold with one of their values, or hold for as long, without
// the victim, which held some.
func (t *quorum) bare(victim *redistest.Server, held Content) []string {
	const moment = int64(50 * time.Millisecond) // between the answers of two servers
	type owned struct{ key, value string }
	own, others := map[owned]int64{}, map[owned][]int64{} // when the key expires, at the victim and elsewhere
	for key, all := range held.Keys {
		for _, s := range all {
			own[owned{key, s.Value}], others[owned{key, s.Value}] = held.At+int64(s.TTL), nil
		}
	}
	for _, s := range t.servers {
		if s == victim {
			continue
		}
		found, _ := look(s) // a server that does not answer counts as one that holds nothing
		for key, all := range found.Keys {
			for _, s := range all {
				o := owned{key, s.Value}
				others[o] = append(others[o], found.At+int64(s.TTL))
			}
		}
	}
	var keys []string
	for o, ends := range others {
		slices.Sort(ends)
		n := len(ends) - t.Need() // at ends[n], a majority still has the key
		end, has := own[o]
		if n < 0 || has && min(end, ends[n+1]) > ends[n]+moment {
			keys = append(keys, o.key)
		}
	}
	return keys
}

// forgetMany restarts a majority without its data, at once.
func (t *quorum) forgetMany(ctx context.Context, f plan.Fault) error {
	var errs []error
	var down []*redistest.Server
	for i := range t.Need() {
		s := t.servers[(f.Pick+i)%places]
		errs = append(errs, s.Kill(), s.Forget())
		down = append(down, s)
	}
	wait(ctx, f.For)
	for _, s := range down {
		errs = append(errs, s.Restart())
	}
	return errors.Join(errs...)
}

func (t *quorum) Need() int   { return places/2 + 1 }
func (t *quorum) Heal() error { return heal(t.servers) }

func (t *quorum) Close() error {
	var running []*redistest.Server
	for _, s := range t.servers {
		if s != nil {
			running = append(running, s)
		}
	}
	return closeAll(running)
}
