package check

import (
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

// stall is the name of a fault that the checks find in a history.
const stall = "stall"

// stalls returns the times in which the whole machine may have stood still, as faults. Samples are a fifth of a second
// apart, and a busy machine adds some time. A longer gap between two of them is such a time.
func stalls(samples []history.Event) (faults []history.Event) {
	const most = int64(450 * time.Millisecond)
	for i := 1; i < len(samples); i++ {
		if from, to := samples[i-1].At, samples[i].Start; to-from > most {
			faults = append(faults, history.Event{Kind: history.Fault, Name: stall, At: from, End: to})
		}
	}
	return faults
}

// slot returns the place of a worker. Processes that replace one another have the same place, and share its faults.
func slot(worker string) string {
	name, _, _ := strings.Cut(worker, ".")
	return name
}

// isHarmless reports whether a fault must have no effect on any call.
func isHarmless(fault string) bool { return fault == "flush-scripts" }

// lastKill returns when a worker was last killed before that time; 0 for never.
func (m *model) lastKill(before int64) (last int64) {
	for _, f := range m.faults {
		if f.Name == "kill-worker" && f.At <= before {
			last = max(last, f.At)
		}
	}
	return last
}

// quiet reports whether no fault touched a worker from from until to, or ended less than settle before.
func (m *model) quiet(worker string, from, to, settle int64) bool {
	return len(m.touching(worker, from, to, settle)) == 0
}

// touching returns the faults that touched a worker from from until to, or that ended less than settle before.
func (m *model) touching(worker string, from, to, settle int64) (found []history.Event) {
	name := slot(worker)
	for _, f := range m.faults {
		if (f.Target == "" || f.Target == name) && f.At <= to && f.End+settle >= from && !isHarmless(f.Name) {
			found = append(found, f)
		}
	}
	return found
}

// rough is touching without the times in which the machine was only a bit slow, so that what takes seconds goes on.
func (m *model) rough(worker string, from, to, settle int64) (found []history.Event) {
	const slow = int64(time.Second)
	return slices.DeleteFunc(m.touching(worker, from, to, settle), func(f history.Event) bool {
		return (f.Name == "slow-server" || f.Name == stall) && f.End-f.At < slow
	})
}

// stalled reports whether the worker process may have stood still for longer than most, between from and to.
func (m *model) stalled(worker string, from, to, most int64) bool {
	beats := m.beats[worker]
	first, _ := slices.BinarySearch(beats, from)
	if first == 0 {
		return true // nobody knows
	}
	for i := first - 1; i+1 < len(beats); i++ {
		if beats[i+1]-beats[i] > most {
			return true
		}
		if beats[i+1] >= to {
			return false
		}
	}
	return true
}

// forgot reports whether Redis may have forgotten, between from and to, what it acknowledged about the keys of a hold.
func (m *model) forgot(h *hold, from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f history.Event) bool { return mayHarm(f, h, from, to) })
}

// broke reports whether that may have broken the hold, because the servers have no guard.
func (m *model) broke(h *hold, from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f history.Event) bool { return f.Grace == 0 && mayHarm(f, h, from, to) })
}

// gaveBack reports whether, between the obtain of a hold and to, a server that went back to what it had gave one of the keys
// back to another token, which had the key then. On a quorum, that server may have been one of a bare majority. An earlier
// round of the same obtain has another token.
func (m *model) gaveBack(h *hold, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f history.Event) bool {
		return f.At <= to && f.Start >= h.Start && slices.ContainsFunc(f.Held, func(held history.Held) bool {
			owner := m.holds[held.Owner] // nil if its obtain was not granted
			isOwn := held.Owner == h.Op || owner != nil && owner.token() == h.token()
			if held.Token != "" && h.Token != "" {
				isOwn = held.Token == h.Token
			}
			return !isOwn && slices.Contains(h.Keys, held.Key)
		})
	})
}

// freed reports whether a release of an earlier hold with the same token may have come so late that it freed the keys of a
// hold until to: a caller that chooses a token should not use it again.
func (m *model) freed(h *hold, to int64) bool {
	return h.Custom && slices.ContainsFunc(m.done, func(e history.Event) bool {
		earlier := m.holds[e.Op]
		return e.Name == "Release" && e.At <= h.At && earlier != nil && earlier != h && earlier.token() == h.token() &&
			slices.ContainsFunc(m.touching(e.Worker, e.Start, e.At, 0), func(f history.Event) bool {
				return (f.Name == "strand-requests" || f.Name == "delay-requests") && f.End >= h.Start && e.Start <= to
			})
	})
}

// mayHarm reports whether a fault may have made Redis forget, between from and to, what it acknowledged about the keys of a
// hold.
func mayHarm(f history.Event, h *hold, from, to int64) bool {
	return f.At <= to && f.End >= from && (f.Lossy || shareKey(f.Keys, h.Keys) || f.Op == h.Op ||
		f.Fresh && f.At <= h.At && h.At <= f.End)
}
