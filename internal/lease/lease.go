package lease

import "time"

// ValidUntil returns the end of the validity that a request sent at that time gains: the ttl less 1 %, because clocks
// may run at slightly different speeds, and less 1 ms, because Redis keeps whole milliseconds.
func ValidUntil(sent time.Time, ttl time.Duration) time.Time {
	ttl = ttl.Truncate(time.Millisecond)
	return sent.Add(ttl - ttl/100 - time.Millisecond)
}

// Passed reports whether t has passed by either clock. The monotonic clock stands still while a machine is suspended,
// and the wall clock can be set back. That it was set forward does not count, where a third clock can tell: see Left.
func Passed(t time.Time) bool { return PassedBy(time.Now(), t) }

// PassedBy is Passed, at that time.
func PassedBy(now, t time.Time) bool { return Left(now, t) <= 0 }

// Lease is how long one hold lasts, as far as its holder can know. The zero Lease has ended. A Lease does no locking;
// its owner must protect it.
type Lease struct {
	Pace
	Refreshes

	ttl   time.Duration // of the last grant or refresh; 0 if not known
	begun int           // number of refreshes so far, and of times that End was called
	ends  int           // of these, how often End was called
}

// Refresh is one refresh of a Lease that is under way, or may be.
type Refresh struct {
	Pending

	Begun int // of the lease, after Begin

	before  time.Time // the lease's until before Begin
	lowered time.Time // the lease's until after Begin
	ends    int       // of the lease at Begin: if it has ended since, a success gains nothing
}

// Granted returns the Lease that a request sent at that time gained, for ttl.
func Granted(sent time.Time, ttl time.Duration) Lease {
	l := Lease{ttl: ttl}
	l.Extend(sent, ValidUntil(sent, ttl))
	return l
}

// Found returns the Lease of a hold that a request sent at that time found to last for left. Its ttl is not known.
func Found(sent time.Time, left time.Duration) Lease {
	return Lease{Pace: Pace{until: ValidUntil(sent, left)}}
}

// TTL returns the ttl of the last grant or refresh, or 0 if it is not known.
func (l *Lease) TTL() time.Duration { return l.ttl }

// Longest returns for how long the keys may last from now on, whatever the holder can rely on; 0 if it is not known.
func (l *Lease) Longest() time.Duration { return max(l.ttl, l.Refreshes.Longest()) }

// Begun returns a number that rises when a refresh begins, and when End is called.
func (l *Lease) Begun() int { return l.begun }

// End ends the validity now, unless it ended before. A refresh or renewal that is under way does not bring it back.
func (l *Lease) End(now time.Time) {
	if now.Before(l.until) {
		l.until = now
	}
	l.begun++ // so that Renewed and Finish see that what they began with has passed
	l.ends++
}

// Prolongs reports whether no key can last longer than a refresh for ttl makes it last, as far as is known.
func (l *Lease) Prolongs(ttl time.Duration) bool { return l.ttl > 0 && ttl >= l.Longest() }

// Begin begins a refresh. If the new ttl is shorter, it brings the validity forward to what the new ttl leaves, because
// that ttl may apply as soon as the request is sent. prolongs says that the request leaves keys alone which last longer.
func (l *Lease) Begin(now time.Time, ttl time.Duration, prolongs bool) *Refresh {
	r := &Refresh{before: l.until}
	l.add(&r.Pending, ttl, prolongs)
	l.begun++
	r.Begun, r.ends = l.begun, l.ends
	l.Shorten(now, ValidUntil(now, ttl))
	r.lowered = l.until
	return r
}

// Finish ends a refresh. If no request was sent, it restores the validity, unless another refresh has begun since. The ttl
// of that one may leave no more validity, although it did not have to bring the validity forward.
func (l *Lease) Finish(r *Refresh, sent bool) {
	if !sent && r.Begun == l.begun && l.until.Equal(r.lowered) {
		l.until = r.before
	}
	l.Refreshes.Finish(&r.Pending)
}

// Doubt notes that a refresh has ended without an answer and may still be executed.
func (l *Lease) Doubt(r *Refresh) { l.Refreshes.Doubt(&r.Pending) }

// Confirm notes that a refresh sent at that time has succeeded.
func (l *Lease) Confirm(r *Refresh, sent time.Time) {
	l.ttl = r.ttl
	if r.ends != l.ends {
		return
	}
	// Renewals and other refreshes may have gained more meanwhile. They allowed for this one.
	if until := ValidUntil(sent, l.Certain(r.least)); until.After(l.until) {
		l.Extend(sent, until)
	}
}

// Renewal is one renewal, and what was known when it was made.
type Renewal struct {
	TTL      time.Duration
	Until    time.Time     // of the lease
	Early    time.Duration // by how much earlier it may be sent
	Patience time.Duration // how long to wait for the answer before another renewal follows
	Begun    int           // of the lease, when this renewal was made

	certain time.Duration // for how long a success is certain to hold
}

// Renew returns the renewal that is due at that time, and when to look at the lease again if the renewal has no result.
// If none is due, it returns nil and the time when one will be.
func (l *Lease) Renew(now time.Time) (*Renewal, time.Time) {
	patience, next := l.Begins(now)
	if patience == 0 {
		return nil, next
	}
	return &Renewal{
		TTL: l.ttl, Until: l.until, Early: l.early, Patience: patience, certain: l.Certain(l.ttl), Begun: l.begun,
	}, next
}

// Renewed notes that a renewal sent at that time has succeeded, and returns when to look at the lease next.
func (l *Lease) Renewed(r *Renewal, sent time.Time) time.Time {
	if r.Begun == l.begun { // otherwise a refresh began meanwhile, and it is not known which was executed first
		if until := ValidUntil(sent, r.certain); until.After(l.until) {
			l.Extend(sent, until)
		}
	}
	return l.Due()
}

// RenewalFailed notes that a renewal has failed, and returns when to look at the lease next. It reports false if the
// failure makes no difference, because another renewal or a refresh has succeeded since.
func (l *Lease) RenewalFailed(r *Renewal, now time.Time) (time.Time, bool) {
	if !r.Until.Equal(l.until) {
		return time.Time{}, false
	}
	return l.Failed(now), true
}
