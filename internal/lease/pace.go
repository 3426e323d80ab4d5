package lease

import (
	"math/rand/v2"
	"time"
)

// Pace says when to renew what is valid until some time: after a third of its validity, and more often when a renewal
// fails or is not answered.
type Pace struct {
	until   time.Time     // the end of validity
	renewAt time.Time     // when it is to be renewed
	early   time.Duration // by how much earlier it may be renewed, to share a round trip
	retryAt time.Time     // no renewal before this time: one is under way, or has just failed
}

// Until returns the end of validity.
func (p *Pace) Until() time.Time { return p.until }

// Early returns by how much earlier a renewal may be sent.
func (p *Pace) Early() time.Duration { return p.early }

// Extend sets the validity that a request sent at that time has gained.
func (p *Pace) Extend(sent, until time.Time) {
	validity := until.Sub(sent)
	p.until, p.renewAt, p.early = until, sent.Add(validity/3), validity/20
	p.retryAt = time.Time{}
}

// Shorten brings the validity forward, unless it ends sooner anyway.
func (p *Pace) Shorten(now, until time.Time) {
	if !until.Before(p.until) {
		return
	}
	validity := until.Sub(now)
	p.until, p.renewAt, p.early = until, earlier(p.renewAt, now.Add(validity/3)), validity/20
	p.retryAt = time.Time{} // the renewal before this had the patience of a longer validity
}

// Follow sets the end of validity to until. That may be later than before, for example because a request that would have
// shortened the validity was not sent.
func (p *Pace) Follow(now, until time.Time) {
	p.Shorten(now, until)
	p.until = until
}

// Hasten makes the next renewal due now.
func (p *Pace) Hasten(now time.Time) { p.renewAt, p.retryAt = earlier(p.renewAt, now), time.Time{} }

// Begins returns how long to wait for the answer to a renewal that begins now, before another one follows, and when to look
// again. If none is due now, it returns 0, and when one will be.
func (p *Pace) Begins(now time.Time) (patience time.Duration, next time.Time) {
	switch {
	case now.Before(p.retryAt):
		return 0, earlier(p.until, p.retryAt)
	case now.Add(p.early).Before(p.renewAt):
		return 0, p.Due()
	}
	// Another renewal follows one that is not answered soon. Several fit into what is left, however little that is.
	patience = max(p.until.Sub(now)/4, p.leastPatience())
	p.retryAt = now.Add(patience)
	return patience, earlier(p.until, p.retryAt)
}

// leastPatience is the least time to wait for the answer to a renewal before another is sent: 50 ms, or less for a
// lease of under two seconds, so that four renewals fit into a tenth of the validity. It is never under 1 ms, because
// that would only keep the CPU busy.
func (p *Pace) leastPatience() time.Duration {
	const most, least = 50 * time.Millisecond, time.Millisecond
	return min(most, max(least, p.early/2)) // early is a twentieth of the validity
}

// Failed notes that a renewal has failed, and returns when to look again.
func (p *Pace) Failed(now time.Time) time.Time {
	pause := max(p.until.Sub(now)/16, p.leastPatience()/4)
	p.retryAt = now.Add(pause/2 + rand.N(pause)) // at random: renewals that failed together must not retry together
	return earlier(p.until, p.retryAt)
}

// Postponed notes that a renewal was not executed and must not be sent again before that time has passed. It returns when to
// look again.
func (p *Pace) Postponed(now time.Time, wait time.Duration) time.Time {
	spread := max(p.until.Sub(now)-wait, 0) / 16 // at random, as in Failed
	p.retryAt = now.Add(wait + rand.N(spread+1))
	return earlier(p.until, p.retryAt)
}

// Due returns when to look, whatever is under way.
func (p *Pace) Due() time.Time { return earlier(p.until, p.renewAt) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
