package topology

import (
	"context"
	"errors"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/worker"
)

// one is a single server.
type one struct {
	name   string // "one" if the server keeps over a restart what it acknowledged, "memory" if not
	guard  worker.Guard
	server *redistest.Server
	clock  *wallClock // nil if the clock cannot be moved
}

func startOne(name string, guard worker.Guard, config ...string) (Topology, error) {
	t := &one{name: name, guard: guard}
	var env []string
	var err error
	if name == "one" { // if the counters of fencing tokens are lost, a clock that goes back may repeat tokens
		if t.clock, env, err = newWallClock(); err != nil {
			return nil, err
		}
	}
	if t.server, err = redistest.StartWithEnv(env, config...); err != nil {
		return nil, errors.Join(err, t.clock.close())
	}
	return t, nil
}

func (t *one) Endpoint() worker.Endpoint {
	return worker.Endpoint{Topology: t.name, Addrs: []string{t.server.Addr()}, Guard: t.guard}
}

func (t *one) Servers() []*redistest.Server { return []*redistest.Server{t.server} }
func (t *one) Holders() []*redistest.Server { return t.Servers() }

func (t *one) Inject(ctx context.Context, f plan.Fault) (Harm, error) {
	switch f.Kind {
	case plan.ClockForward, plan.ClockBack, plan.ClockDrift:
		return t.clock.inject(ctx, f)
	case plan.FlushAll, plan.RestartEmpty, plan.RestartOld:
		return forget(ctx, t.server, f)
	}
	return harm(f.Kind == plan.RestartServer && t.name == "memory"), single(ctx, t.server, f)
}

func (t *one) Need() int    { return 1 }
func (t *one) Heal() error  { return heal(t.Servers()) }
func (t *one) Close() error { return errors.Join(t.server.Close(), t.clock.close()) }
