package check

import (
	"fmt"

	"github.com/redislock/redislock/torture/internal/history"
)

// kept: the context of a kept lock is not alive once Until has passed.
func kept(m *model, r *Result) {
	for _, e := range m.alives {
		if e.Bound == 0 {
			continue
		}
		r.Checked[Kept]++
		if e.At > e.Bound {
			r.add(Violation{
				Check: Kept, At: e.At, Ops: []string{e.Op},
				What: fmt.Sprintf("the context of %s was alive %s after Until", e.Op, seconds(e.At-e.Bound)),
			})
		}
	}
}

// leases: what TTL reports lasts at least as long as the worker believed that it holds the lock. Redis cuts fractions of a
// millisecond off.
func leases(m *model, r *Result) {
	const fraction = 1_000_000
	for _, e := range m.done {
		h := m.holds[e.Op]
		if e.Name != "TTL" || e.Outcome != ok || e.Left <= 0 || h == nil {
			continue
		}
		until := h.untilAt(e.Start)
		if until == 0 {
			continue
		}
		r.Checked[Lease]++
		if expiry := e.At + int64(e.Left) + fraction; until > expiry {
			r.add(Violation{
				Check: Lease, At: e.At, Ops: []string{e.Op}, Excused: m.forgot(h.Start, e.At),
				What: fmt.Sprintf("%s counts on its lock for %s longer than Redis keeps it", e.Op, seconds(until-expiry)),
			})
		}
	}
}

// losses: no call reports that a lock is lost before the end of its validity.
func losses(m *model, r *Result) {
	for _, e := range m.done {
		h := m.holds[e.Op]
		if h == nil || !reportsLoss(e) {
			continue
		}
		r.Checked[Loss]++
		if until := h.untilAt(e.Start); e.Lost && e.At < until {
			r.add(Violation{
				Check: Loss, At: e.At, Ops: []string{e.Op}, Excused: m.forgot(h.Start, e.At),
				What: fmt.Sprintf("%s of %s reported a loss %s before Until", e.Name, e.Op, seconds(until-e.At)),
			})
		}
	}
}

func reportsLoss(e history.Event) bool {
	switch e.Name {
	case "Release", "Refresh", "TTL", "KeepAlive":
		return true
	}
	return e.Lost
}
