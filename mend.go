package redislock

import (
	"errors"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// mendNear is how much earlier than the loss of one hold the others may have been confirmed, as a part of the ttl. The
// renewals of one round are sent at nearly the same time.
const mendNear = 6

// mend obtains missing holds again. It does so for a hold only if enough others were confirmed lately, and since that
// hold was found missing. So a lock whose keys an operator has deleted at all places does not come back, even if a
// repair had to wait.
func (h *several) mend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	ttl := h.ttlLocked()
	if h.over || ttl == 0 || lease.Passed(h.untilLocked()) {
		return
	}
	now := time.Now()
	for i := range h.at {
		at := &h.at[i]
		if at.missing.IsZero() || at.mending || at.giving > 0 {
			continue
		}
		since, confirmed := at.missing.Add(-ttl/mendNear), 0
		if lately := now.Add(-ttl / 2); lately.After(since) {
			since = lately
		}
		for j := range h.at {
			if other := &h.at[j]; j != i && other.missing.IsZero() && other.lock != nil && other.heard.After(since) {
				confirmed++
			}
		}
		if confirmed < h.places.need {
			continue
		}
		p := h.places.all[i]
		if !p.health.admitRepair(now, len(p.keys), h, h.keeping != nil) {
			continue
		}
		at.mending, at.unproven = true, true
		if at.lock != nil {
			at.lock.replace()
		}
		p.calls.Add(1)
		transport.Go(func() { // ends with the call
			defer p.calls.Add(-1)
			h.mendAt(i, ttl)
		})
	}
}

// ttlLocked returns the ttl of the last obtain or refresh; 0 if it is not known. The caller holds h.mu.
func (h *several) ttlLocked() (ttl time.Duration) {
	for i := range h.at {
		if lock := h.at[i].lock; lock != nil && h.at[i].missing.IsZero() {
			lock.mu.Lock()
			ttl = max(ttl, lock.lease.TTL())
			lock.mu.Unlock()
		}
	}
	return ttl
}

// mendAt obtains the keys again at one place, which has admitted the repair. It does not look at lines: this lock is held.
func (h *several) mendAt(i int, ttl time.Duration) {
	p := h.places.all[i]
	n := len(p.keys)
	a := &attempt{
		remains:  remains{place: p.place, keys: p.keys, boxed: p.boxed[:n:n], token: h.token, ttl: ttl},
		metadata: h.currentMetadata(),
	}
	var lock *hold
	err := errPanicked // unless tryHere returns
	began, answered := time.Now(), false
	defer func() { p.health.repairEnded(time.Now(), time.Since(began), answered) }() // when mending is over
	defer func() {
		if err != nil {
			_ = recover() // a hook has panicked, and the lock is held without this place
			h.missAgain(i, began, a, err, answered)
			if errors.Is(err, ErrNotObtained) {
				h.mendSoon(i)
			}
		}
	}()
	c := new(transport.Call)
	lock, err = a.tryHere(h.ctx, c, h)
	answered = c.IsAnswered()
	if err == nil {
		lock.boxed = p.boxed
		h.join(h.ctx, i, lock, a.doubtful, true)
	}
}

// maxSoon is how often mendSoon mends for one hold. That takes 155 ms.
const maxSoon = 5

// mendSoon mends in a moment: the place has refused because it is about to get the keys back from somebody else, who has
// too few places. Until it has the lock again, one more server that forgets could give the lock to another.
func (h *several) mendSoon(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := &h.at[i]; at.refused < maxSoon {
		time.AfterFunc(topUpAfter<<at.refused, h.mend)
		at.refused++
	}
}

// missAgain notes that a hold could not be obtained again, by a try that began at that time.
func (h *several) missAgain(i int, began time.Time, a *attempt, err error, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, refused, panicked := &h.at[i], errors.Is(err, ErrNotObtained), err == errPanicked
	unsure := panicked || a.doubtful || a.late
	at.mending, at.stray = false, at.stray || unsure
	at.unproven = at.stray || refused // then another has keys there, and what a Refresh has found before proves nothing
	switch {
	case panicked || answered:
		at.missing = began
	case h.keeping != nil && !h.over: // it is tried again once the server answers
		h.places.all[i].health.await(h)
	}
	if refused {
		at.without = time.Now()
	}
	if h.over && unsure {
		h.giveBack(h.ctx, i, h.obtained, true)
	}
}
