package topology

import (
	"context"
	"errors"
	"sync"

	"github.com/redislock/redislock/internal/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/worker"
)

const places = 5

// quorum is several servers that know nothing of each other. They keep what they acknowledged over a restart, unless the
// fault says otherwise.
type quorum struct {
	servers []*redistest.Server
}

func startQuorum() (Topology, error) {
	t := &quorum{servers: make([]*redistest.Server, places)}
	errs := make([]error, places)
	var wg sync.WaitGroup
	for i := range places {
		wg.Go(func() { t.servers[i], errs[i] = redistest.Start("appendonly yes", "appendfsync always") })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *quorum) Endpoint() worker.Endpoint {
	return worker.Endpoint{Topology: "quorum", Addrs: addrs(t.servers)}
}

func (t *quorum) Servers() []*redistest.Server { return t.servers }
func (t *quorum) Holders() []*redistest.Server { return t.servers }

func (t *quorum) Inject(ctx context.Context, f plan.Fault) (lossy bool, err error) {
	server := t.servers[f.Pick%places]
	switch f.Kind {
	case plan.ForgetServer:
		return false, t.forget(ctx, f, 1)
	case plan.ForgetMany:
		return true, t.forget(ctx, f, places/2+1)
	}
	return false, single(ctx, server, f)
}

// forget empties servers. A server that was killed and lost its disk comes back like this.
func (t *quorum) forget(ctx context.Context, f plan.Fault, many int) error {
	var errs []error
	var down []*redistest.Server
	for i := range many {
		s := t.servers[(f.Pick+i)%places]
		errs = append(errs, ask(s, "flushall", "sync"), s.Kill())
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
