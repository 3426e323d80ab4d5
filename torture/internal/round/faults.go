package round

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/topology"
)

// breakThings does what the plan says, and returns when the round is over and all faults have ended.
func (r *round) breakThings(ctx context.Context) {
	start := time.Now()
	var running sync.WaitGroup
	for _, f := range r.Plan() {
		if !sleep(ctx, time.Until(start.Add(f.At))) {
			break
		}
		running.Go(func() { r.fault(ctx, f) })
	}
	<-ctx.Done()
	running.Wait()
}

// sleep reports whether d has passed before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fault does one fault and writes it down. The written time begins before the fault and ends after it.
func (r *round) fault(ctx context.Context, f plan.Fault) {
	e := history.Event{Kind: history.Fault, At: clock.Now(), Name: string(f.Kind), Outcome: "done"}
	var err error
	switch action, isNetwork := r.action(f); {
	case f.Kind == plan.StopWorker || f.Kind == plan.KillWorker:
		s := r.slots[f.Pick%len(r.slots)]
		e.Target = s.name
		err = s.hit(ctx, f)
	case isNetwork:
		var behind []*slot
		for _, s := range r.slots {
			if len(s.proxies) > 0 {
				behind = append(behind, s)
			}
		}
		s := behind[f.Pick%len(behind)]
		e.Target = s.name
		s.disturb(ctx, f, action)
	default:
		deposes := f.Kind == plan.CrashMaster || f.Kind == plan.WakeMaster || f.Kind == plan.IsolateMaster
		if f.Kind == plan.Failover || deposes && r.grace > 0 {
			r.handovers.Add(1)
			defer time.AfterFunc(2*time.Second, func() { r.handovers.Add(-1) })
		}
		if f.Kind == plan.IsolateMaster {
			guide := r.misguide()
			defer guide()
		}
		var harm topology.Harm
		harm, err = r.topology.Inject(ctx, f)
		e.Lossy, e.Keys, e.Grace = harm.Everything, harm.Keys, r.grace
		if harm.Unguarded {
			e.Grace = 0
		}
		e.Start, e.Held = harm.Back.At, locks(harm.Back, 0, false)
		if f.Kind == plan.Failover || deposes { // the old master may have granted locks until now
			e.Start = clock.Now()
		}
	}
	e.End = clock.Now()
	if err != nil {
		e.Outcome = "failed" // most often, another fault was in the way; the time counts all the same
		e.Options = []string{word(err.Error())}
	}
	r.log.Write(e)
}

// misguide keeps the workers behind proxies from hearing of a new master, until the returned function is called.
func (r *round) misguide() (guide func()) {
	var silent []*faultproxy.Proxy
	for _, s := range r.slots {
		for i, server := range r.topology.Servers() {
			if len(s.proxies) > 0 && slices.Contains(r.topology.Endpoint().Addrs, server.Addr()) {
				silent = append(silent, s.proxies[i])
			}
		}
	}
	for _, p := range silent {
		p.Hang()
	}
	return func() {
		for _, p := range silent {
			p.Resume()
			p.CutAll()
		}
	}
}

// hit stops or kills the worker of a slot.
func (s *slot) hit(ctx context.Context, f plan.Fault) error {
	p := s.current()
	if f.Kind == plan.StopWorker {
		if err := p.Pause(); err != nil {
			return err
		}
		sleep(ctx, f.For)
		return p.Resume()
	}
	if err := p.Kill(); err != nil {
		return err
	}
	if !sleep(ctx, f.For) || s.current() != p {
		return nil // the round is over, or another kill has put a process in its place
	}
	return s.run()
}

// action returns what a fault of the network does to single requests. It is the zero Action for the other faults.
func (r *round) action(f plan.Fault) (action faultproxy.Action, isNetwork bool) {
	switch f.Kind {
	case plan.SwallowReplies:
		return faultproxy.SwallowReply(), true
	case plan.DelayReplies:
		return faultproxy.DelayReply(f.Delay), true
	case plan.CutReplies:
		return faultproxy.CutAfterReplyBytes(f.Bytes), true
	case plan.CutRequests:
		return faultproxy.CutAfterRequestBytes(20 * f.Bytes), true
	case plan.DelayRequests:
		return faultproxy.DelayRequest(f.Delay), true
	case plan.StrandRequests:
		return faultproxy.CutClient().And(faultproxy.DelayRequest(f.Delay)), true
	case plan.RepeatRequests:
		return faultproxy.RepeatRequest(), true
	case plan.RefuseLoading:
		return faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory"), true
	case plan.BlackHole:
		return faultproxy.BlackHole(), true
	case plan.Partition:
		return faultproxy.Action{}, true
	}
	return faultproxy.Action{}, false
}

// disturb disturbs the traffic of a slot for a while.
func (s *slot) disturb(ctx context.Context, f plan.Fault, action faultproxy.Action) {
	if f.Kind == plan.Partition {
		for _, p := range s.proxies {
			p.RefuseConnections(true)
			p.CutAll()
		}
		sleep(ctx, f.For)
		for _, p := range s.proxies {
			p.RefuseConnections(false)
		}
		return
	}
	rule := faultproxy.Rule{Match: faultproxy.Command("evalsha", "eval"), Times: f.Times, Action: action}
	switch f.Kind {
	case plan.BlackHole: // the whole connection, and the subscription as well
		rule.Match, rule.Times = nil, 0
	case plan.StrandRequests: // one that is sent again, and the call after it, overtake the stranded one
		rule.Match = everySecond(rule.Match)
		rule.Times *= 10
	case plan.RepeatRequests, plan.DelayRequests, plan.DelayReplies:
		rule.Times *= 10
	}
	// All bits of Pick are random, so with several servers, the fault hits some of them.
	var faults []*faultproxy.Fault
	for i, p := range s.proxies {
		if len(s.proxies) == 1 || f.Pick>>(i+4)&1 == 1 {
			faults = append(faults, p.Add(rule))
		}
	}
	sleep(ctx, f.For)
	for _, one := range faults {
		one.Remove()
	}
	switch f.Kind {
	case plan.BlackHole: // the connections stay silent for good, and a subscription may take long to notice
		for _, p := range s.proxies {
			p.CutAll()
		}
	case plan.DelayReplies, plan.DelayRequests, plan.StrandRequests:
		sleep(context.WithoutCancel(ctx), f.Delay) // delayed requests and replies arrive in this time
	}
}

// everySecond matches every second request that match does.
func everySecond(match func([]string) bool) func([]string) bool {
	var n atomic.Uint64
	return func(args []string) bool { return match(args) && n.Add(1)%2 == 1 }
}
