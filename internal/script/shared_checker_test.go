package script_test

import (
	"fmt"
	"slices"
	"time"
)

const (
	sharedKeys = 3
	unwanted   = -1 // in place of a limit: the lock does not want the key

	sharedLife     = 3 * time.Second
	sharedInterval = sharedLife / 3 // between the beats of an inbox

	unsure = "?"

	// prompt is within what time the first waiter tries when the last hold in its way has ended.
	prompt = 12 * time.Millisecond

	// margin is how far a time in ms may be off.
	margin = 2 * time.Millisecond
)

// sharedHold is a lock, and what its caller was promised. Each time is by the clock of the caller, which is the clock of the
// server as well. A script runs at some moment between its request and its reply.
type sharedHold struct {
	token    string
	limits   [sharedKeys]int // unwanted; 0 for any number of holders, 1 for an exclusive key, N for a permit
	ttl      time.Duration
	given    string                // the metadata of its obtain
	metadata string                // that of its keys; unsure if a late call may have changed it
	certain  [sharedKeys]time.Time // until when the caller relies on the key
	possible [sharedKeys]time.Time // until when the server may count it as a holder
	from     *sharedWaiter         // the waiter that was granted it; nil if none was
}

// sharedWaiter is a caller that has asked for a position in line.
type sharedWaiter struct {
	hold   *sharedHold
	box    *sharedBox
	number int
	ticket int64 // 0 if it knows of none
	place  int64 // the ticket that the server has given it last, whether or not the reply was lost
	stands bool  // it was refused, and nothing has said since then that its entries may be missing
	left   bool  // nobody waits any more, but entries may still stand in line

	called  bool      // it tries at once
	due     time.Time // it tries then; zero if it waits for a message or a beat
	excused bool      // a hold has ended early, and no script had to tell anybody
	idle    time.Time // since when it could go, although nothing makes it try
}

// sharedBox is an inbox, which keeps its waiters live with beats.
type sharedBox struct {
	name     string
	open     bool // its subscription is open, as its calls say
	dead     bool
	paused   time.Time             // until when it does nothing
	next     time.Time             // its next beat
	beats    int                   // how many it has sent
	ghosts   map[string]bool       // ids of waiters that have left, which beats name
	marked   [sharedKeys]time.Time // the request of the last call that has renewed its mark
	possible [sharedKeys]time.Time // until when its waiters may be live
}

func (w *sharedWaiter) id() string { return fmt.Sprintf("%s/%d", w.box.name, w.number) }

// acts reports whether the caller of a waiter is there to do something.
func (w *sharedWaiter) acts(now time.Time) bool {
	return !w.left && !w.box.dead && !now.Before(w.box.paused)
}

// promised checks what the scripts reply, store and publish against what callers were promised. It knows nothing of how the
// scripts keep that.
type promised struct {
	holds   []*sharedHold
	waiters []*sharedWaiter
	remains [sharedKeys]time.Time // until when a key or a house may last whose other half was deleted by hand
	lasting [sharedKeys]time.Time // until when a line certainly lasts; see lineLasts in line.lua
	sent    time.Time             // the last request, and its reply
	got     time.Time
	problem string
}

func (p *promised) check(ok bool, format string, args ...any) {
	if !ok && p.problem == "" {
		p.problem = fmt.Sprintf(format, args...)
	}
}

// exceeds reports whether so many holders are more than a limit.
func exceeds(holders, limit int) bool { return limit != 0 && holders > limit }

// stricter returns the lower limit.
func stricter(a, b int) int {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// isLive reports whether a waiter certainly stands in the line of a key, and is live there.
func (p *promised) isLive(w *sharedWaiter, i int, at time.Time) bool {
	return w.stands && !w.left && at.Before(w.box.marked[i].Add(sharedLife-margin)) && at.Before(p.lasting[i])
}

// mayBeLive reports whether a script may find a waiter live.
func (w *sharedWaiter) mayBeLive(at time.Time) bool {
	for i, limit := range w.hold.limits {
		if limit != unwanted && !w.box.possible[i].Before(at) {
			return true
		}
	}
	return false
}

// isAhead reports whether v certainly or possibly goes before w in their lines. Everybody goes before a caller without a waiter,
// and may go before one that does not know its ticket.
func isAhead(v, w *sharedWaiter, certainly bool) bool {
	if v == w || w == nil || w.place == 0 || w.ticket == 0 && !certainly {
		return v != w
	}
	return v.place < w.place
}

// inTheWay returns what keeps a caller from its keys, or "": what certainly does, or what possibly does. A key has at most as
// many holders as each of them allows. A waiter ahead with another limit blocks as an exclusive one does. Those with the same
// limit count as holders. A caller that has one of its keys goes before all who wait.
func (p *promised) inTheWay(h *sharedHold, w *sharedWaiter, certainly bool, at time.Time) string {
	skips := false
	for i, limit := range h.limits {
		skips = skips || certainly && limit != unwanted && !h.possible[i].Before(at)
	}
	for i, limit := range h.limits {
		if limit == unwanted {
			continue
		}
		n, least, who := 1, limit, ""
		for _, o := range p.holds {
			if o == h || o.limits[i] == unwanted || certainly && !o.certain[i].After(at) || o.possible[i].Before(at) {
				continue
			}
			n, least, who = n+1, stricter(least, o.limits[i]), fmt.Sprintf("%s %s (limit %d)", who, o.token, o.limits[i])
		}
		if exceeds(n, least) {
			return fmt.Sprintf("k%d, limit %d, is held by%s", i, limit, who)
		}
		if !certainly && limit == 1 && !p.remains[i].Before(at) {
			return fmt.Sprintf("k%d may be what an operator has left", i)
		}
		for _, v := range p.waiters {
			if skips || certainly && v.hold == h || v.hold.limits[i] == unwanted || !isAhead(v, w, certainly) || certainly && !p.isLive(v, i, at) || !v.mayBeLive(at) {
				continue
			}
			n, who = n+1, fmt.Sprintf("%s waiter %s (limit %d)", who, v.id(), v.hold.limits[i])
			if v.hold.limits[i] != limit || exceeds(n, least) {
				return fmt.Sprintf("k%d, limit %d, belongs to%s", i, limit, who)
			}
		}
	}
	return ""
}

// granted checks a grant, and notes it. The caller relies on it if counts is set.
func (p *promised) granted(what string, h *sharedHold, w *sharedWaiter, counts bool) {
	wrong := p.inTheWay(h, w, true, p.got)
	p.check(wrong == "", "%s: %s is granted its keys, but %s", what, h.token, wrong)
	switch {
	case !h.isHeld(p.sent):
		h.metadata = h.given
	case h.metadata != h.given: // some keys keep theirs
		for i, limit := range h.limits {
			if limit != unwanted && !h.certain[i].After(p.got) {
				h.metadata = unsure
			}
		}
	}
	for i, limit := range h.limits {
		if limit == unwanted {
			continue
		}
		h.possible[i] = later(h.possible[i], p.got.Add(h.ttl+margin))
		if counts {
			h.certain[i] = later(h.certain[i], p.sent.Add(h.ttl-margin))
		}
	}
	if !slices.Contains(p.holds, h) {
		p.holds = append(p.holds, h)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refused checks a refusal.
func (p *promised) refused(h *sharedHold, w *sharedWaiter) {
	p.check(p.inTheWay(h, w, false, p.sent) != "", "%s is refused its keys %v, but nothing is in the way", h.token, h.limits)
}

// lost checks which keys a release or a refresh reports as lost.
func (p *promised) lost(what string, h *sharedHold, reply any) {
	reported, at := map[int]bool{}, 0
	list, _ := reply.([]any)
	for _, entry := range list {
		index, _ := entry.(int64)
		taken := index > 0
		reported[int(max(index, -index))] = taken
	}
	for i, limit := range h.limits {
		if limit == unwanted {
			continue
		}
		at++
		taken, is := reported[at]
		p.check(!is || !h.certain[i].After(p.got), "a %s reports that %s has lost k%d, on which it relies", what, h.token, i)
		p.check(is || !h.possible[i].Before(p.sent), "a %s reports that %s has k%d, which had ended", what, h.token, i)
		certainly, possibly := false, !p.remains[i].Before(p.sent)
		for _, o := range p.holds {
			certainly = certainly || o != h && o.certain[i].After(p.got) && (limit == 1 || o.limits[i] == 1)
			possibly = possibly || o != h && !o.possible[i].Before(p.sent)
		}
		p.check(!is || taken || !certainly, "a %s reports that k%d of %s is gone, but another has it", what, i, h.token)
		p.check(!is || !taken || possibly, "a %s reports that another has k%d of %s, but nobody has", what, i, h.token)
	}
}

// ends notes that a caller has given up its lock.
func (p *promised) ends(h *sharedHold) {
	h.certain, h.possible = [sharedKeys]time.Time{}, [sharedKeys]time.Time{}
	p.holds = slices.DeleteFunc(p.holds, func(o *sharedHold) bool { return o == h })
}

// refreshed checks a refresh that has replied 0, and notes it.
func (p *promised) refreshed(h *sharedHold, ttl time.Duration, prolongs bool) {
	p.lost("refresh", h, nil)
	for i, limit := range h.limits {
		if limit == unwanted {
			continue
		}
		certain, possible := p.sent.Add(ttl-margin), p.got.Add(ttl+margin)
		if prolongs {
			certain, possible = later(certain, h.certain[i]), later(possible, h.possible[i])
		}
		h.certain[i], h.possible[i] = certain, possible
	}
}

// lasts checks what pttl has replied.
func (p *promised) lasts(h *sharedHold, reply any) {
	ms, ok := reply.(int64)
	left := time.Duration(ms) * time.Millisecond
	least, most, some := time.Hour, time.Hour, true
	for i, limit := range h.limits {
		if limit != unwanted {
			least = min(least, h.certain[i].Sub(p.got))
			most = min(most, max(h.possible[i].Sub(p.sent), 0))
			some = some && h.certain[i].After(p.got)
		}
	}
	p.check(ok && ms >= 0, "pttl replies %v", reply)
	p.check(left <= most+margin, "pttl says that %s lasts %v, but it lasts at most %v", h.token, left, most)
	p.check(!some || left >= least-margin, "pttl says that %s lasts %v, but it lasts at least %v", h.token, left, least)
}

// remarked notes that a call of an inbox has renewed its mark in the line of a key. If it has made the mark, the entries of
// others of the inbox may be missing there, and they try again.
func (p *promised) remarked(b *sharedBox, i int, made bool, by *sharedWaiter) {
	b.marked[i], b.possible[i] = p.sent, p.got.Add(sharedLife+margin)
	if made {
		p.prolonged(i)
		p.mayBeMissing(b, i, by)
	}
}

// prolonged notes that a call has made a line last.
func (p *promised) prolonged(i int) { p.lasting[i] = p.sent.Add(sharedLife*7/3 - margin) }

func (p *promised) mayBeMissing(b *sharedBox, i int, by *sharedWaiter) {
	for _, w := range p.waiters {
		if w.box == b && w != by && w.hold.limits[i] != unwanted {
			w.stands, w.called = false, true
		}
	}
}

// mustTry reports whether something makes a waiter try now, or soon.
func (w *sharedWaiter) mustTry(now time.Time) bool {
	return w.called || !w.due.IsZero() && !now.Add(margin).Before(w.due)
}

// follows reports whether somebody who goes before a waiter in one of its lines tries soon. Its grant wakes the next ones.
func (p *promised) follows(w *sharedWaiter, now time.Time) bool {
	return slices.ContainsFunc(p.waiters, func(v *sharedWaiter) bool {
		if !isAhead(v, w, false) || !v.mustTry(now) || !v.mayBeLive(now) {
			return false
		}
		for i := range sharedKeys {
			if v.hold.limits[i] != unwanted && w.hold.limits[i] != unwanted {
				return true
			}
		}
		return false
	})
}

// isBehindGhost reports whether somebody who does not wait any more stands before a waiter, and may be live. Its inbox may not
// beat for it.
func (p *promised) isBehindGhost(w *sharedWaiter, now time.Time) bool {
	return slices.ContainsFunc(p.waiters, func(v *sharedWaiter) bool {
		return isAhead(v, w, false) && !v.acts(now) && v.mayBeLive(now)
	})
}

// isFirst reports whether nobody stands before a waiter in any of its lines.
func (p *promised) isFirst(w *sharedWaiter) bool {
	return !slices.ContainsFunc(p.waiters, func(v *sharedWaiter) bool {
		for i, limit := range w.hold.limits {
			if limit != unwanted && v.hold.limits[i] != unwanted && isAhead(v, w, false) {
				return true
			}
		}
		return false
	})
}

// isFar reports whether so many stand before a waiter in one of its lines that a beat need not tell it. It tries after 30 s.
func (p *promised) isFar(w *sharedWaiter) bool {
	for i, limit := range w.hold.limits {
		ahead := 0
		for _, v := range p.waiters {
			if limit != unwanted && v.hold.limits[i] != unwanted && isAhead(v, w, false) {
				ahead++
			}
		}
		if ahead >= 8 {
			return true
		}
	}
	return false
}

// blocked returns those waiters who certainly cannot have their keys.
func (p *promised) blocked(at time.Time) map[*sharedWaiter]bool {
	all := map[*sharedWaiter]bool{}
	for _, w := range p.waiters {
		all[w] = w.stands && p.inTheWay(w.hold, w, true, at) != ""
	}
	return all
}

// awake checks that each waiter tries that could have its keys now: at once, if the last script has made that possible, and
// otherwise when the inbox has beaten. before has those who were blocked before the script.
func (p *promised) awake(before map[*sharedWaiter]bool, now time.Time, patience time.Duration) {
	for _, w := range p.waiters {
		if !w.acts(now) || w.mustTry(now) || p.follows(w, now) || p.inTheWay(w.hold, w, false, p.sent) != "" {
			w.idle = time.Time{}
			continue
		}
		p.check(!before[w] || w.excused, "nobody has told %s (ticket %d) of %v that it can go", w.id(), w.place, w.hold.limits)
		if w.idle.IsZero() || p.isBehindGhost(w, now) {
			w.idle = now
		}
		p.check(now.Sub(w.idle) < prompt || w.due.IsZero() || w.excused || !p.isFirst(w),
			"%s (ticket %d) of %v is the first, could go for %v, and is due too late", w.id(), w.place, w.hold.limits, now.Sub(w.idle))
		p.check(now.Sub(w.idle) < patience || w.excused || p.isFar(w), "%s (ticket %d) of %v could go for %v, and nothing makes it try",
			w.id(), w.place, w.hold.limits, now.Sub(w.idle))
	}
}
