package lease_test

import (
	"testing"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// A renewal is due when a third of the validity has passed, or up to a twentieth of it sooner. The next try follows when
// a quarter of what is left has passed, and no sooner than the least patience.
func TestRenewIsDue(t *testing.T) {
	for _, c := range []struct {
		ttl             time.Duration
		due, early      time.Duration
		patience        time.Duration // of a renewal that was made when it was due
		patienceAtUntil time.Duration // of one at the last moment
	}{
		{30*sec + 304*ms, 10 * sec, 1500 * ms, 5 * sec, 50 * ms}, // less 1 % and 1 ms, some 30 s
		{2*sec + 22*ms, 667 * ms, 100 * ms, 334 * ms, 50 * ms},
		{304 * ms, 100 * ms, 15 * ms, 50 * ms, 7500 * time.Microsecond},
		{12 * ms, 3627 * time.Microsecond, 544 * time.Microsecond, 1813 * time.Microsecond, ms},
	} {
		near := func(what string, got, want time.Duration) {
			t.Helper()
			if diff := (got - want).Abs(); diff > want/200+5*time.Microsecond {
				t.Errorf("ttl %v: %s is %v, want %v", c.ttl, what, got, want)
			}
		}
		l := lease.Granted(start, c.ttl)
		validity := l.Until().Sub(start)
		near("the time when it is due", l.Due().Sub(start), c.due)
		renewal, next := l.Renew(l.Due().Add(-validity/20 - time.Nanosecond))
		if renewal != nil || !next.Equal(l.Due()) {
			t.Errorf("ttl %v: renewed too soon: %v, next at %v", c.ttl, renewal, next.Sub(start))
		}
		renewal, next = l.Renew(l.Due())
		if renewal == nil || renewal.TTL != c.ttl || !renewal.Until.Equal(l.Until()) {
			t.Fatalf("ttl %v: %+v", c.ttl, renewal)
		}
		near("early", renewal.Early, c.early)
		near("the patience", renewal.Patience, c.patience)
		near("the next try", next.Sub(l.Due()), min(c.patience, l.Until().Sub(l.Due())))
		if again, _ := l.Renew(next.Add(-time.Nanosecond)); again != nil {
			t.Errorf("ttl %v: renewed again before its patience was over", c.ttl)
		}
		if again, _ := l.Renew(next); again == nil {
			t.Errorf("ttl %v: not renewed again when its patience was over", c.ttl)
		}
		last := lease.Granted(start, c.ttl)
		renewal, _ = last.Renew(last.Until())
		near("the least patience", renewal.Patience, c.patienceAtUntil)
	}
}

func TestRenewEarly(t *testing.T) {
	l := lease.Granted(start, 30*sec)
	renewal, _ := l.Renew(l.Due().Add(-l.Until().Sub(start) / 20))
	if renewal == nil {
		t.Error("not renewed a twentieth of the validity before its time")
	}
}

func TestRenewed(t *testing.T) {
	l := lease.Granted(start, 10*sec)
	renewal, _ := l.Renew(at(4 * sec))
	next := l.Renewed(renewal, at(4*sec))
	wantTime(t, "the end", l.Until(), 4*sec+9899*ms)
	wantTime(t, "the next look", next, 4*sec+9899*ms/3)
	if again, _ := l.Renew(next); again == nil {
		t.Error("not renewed when that was due")
	}

	l.Renewed(renewal, at(3*sec)) // a second reply, of a request sent before
	wantTime(t, "the end after a late reply", l.Until(), 4*sec+9899*ms)
}

// It is not known whether a renewal was executed before or after the refresh that began meanwhile.
func TestRenewedAfterARefresh(t *testing.T) {
	l := lease.Granted(start, 10*sec)
	renewal, _ := l.Renew(at(4 * sec))
	refresh := l.Begin(at(5*sec), 2*sec, false)
	l.Renewed(renewal, at(4*sec))
	wantTime(t, "the end while the refresh is under way", l.Until(), 5*sec+1979*ms)
	l.Confirm(refresh, at(5*sec))
	l.Finish(refresh, true)
	l.Renewed(renewal, at(6*sec))
	wantTime(t, "the end after the refresh", l.Until(), 5*sec+1979*ms)
}

// A refresh for a shorter ttl brings the renewal forward with the validity.
func TestRefreshBringsRenewalForward(t *testing.T) {
	l := lease.Granted(start, time.Hour)
	l.Begin(at(sec), 10*sec, false)
	wantTime(t, "the next look", l.Due(), sec+9899*ms/3)
}

func TestRenewalFailed(t *testing.T) {
	const left = 6 * sec // of the validity
	for range 100 {
		l := lease.Granted(start, 10*sec)
		now := l.Until().Add(-left)
		renewal, _ := l.Renew(now)
		next, counts := l.RenewalFailed(renewal, now)
		if pause := next.Sub(now); !counts || pause < left/32 || pause > left*3/32 {
			t.Fatalf("the next try is %v later (%v), want some 190 to 560 ms", pause, counts)
		}
		if again, _ := l.Renew(next.Add(-time.Nanosecond)); again != nil {
			t.Fatal("renewed again too soon")
		}
		if again, _ := l.Renew(next); again == nil {
			t.Fatal("not renewed again when that was due")
		}
	}
}

func TestRenewalFailedTooLateToMatter(t *testing.T) {
	l := lease.Granted(start, 10*sec)
	failed, _ := l.Renew(at(4 * sec))
	better, _ := l.Renew(at(6 * sec))
	l.Renewed(better, at(6*sec))
	if _, counts := l.RenewalFailed(failed, at(7*sec)); counts {
		t.Error("counts although another renewal has succeeded")
	}
	if next, _ := l.Renew(at(7 * sec)); next != nil {
		t.Error("renewed again because of it")
	}
}

// However many tries fail, there is always another one before the end.
func TestRenewalTriesUntilTheEnd(t *testing.T) {
	for _, ttl := range []time.Duration{20 * ms, 100 * ms, sec, 30 * sec, time.Hour} {
		l := lease.Granted(start, ttl)
		tries := 0
		for now := l.Due(); now.Before(l.Until()); {
			renewal, next := l.Renew(now)
			if renewal != nil {
				tries++
			}
			if !next.After(now) {
				t.Fatalf("ttl %v: the next look at %v is not after this one", ttl, next.Sub(start))
			}
			now = next
		}
		if tries < 4 {
			t.Errorf("ttl %v: %d unanswered tries until the end", ttl, tries)
		}
	}
}

// The patience with a renewal that is under way must not hold up those of the much shorter lease that a refresh made.
func TestRenewedInTimeAfterAShorterRefresh(t *testing.T) {
	l := lease.Granted(start, time.Hour)
	l.Renew(at(20 * time.Minute)) // no answer for ten minutes
	r := l.Begin(at(20*time.Minute), 10*sec, false)
	l.Confirm(r, at(20*time.Minute))
	l.Finish(r, true)
	if renewal, _ := l.Renew(l.Due()); renewal == nil || renewal.TTL != 10*sec {
		t.Errorf("not renewed when that was due: %+v", renewal)
	}
}

// A guard that has just closed executes no renewal for a while.
func TestRenewalPostponed(t *testing.T) {
	for range 100 {
		l := lease.Granted(start, 10*sec)
		const wait = 3 * sec
		now := l.Until().Add(-6 * sec)
		if renewal, _ := l.Renew(now); renewal == nil {
			t.Fatal("not due")
		}
		next := l.Postponed(now, wait)
		if pause := next.Sub(now); pause < wait || pause > wait+(6*sec-wait)/16 {
			t.Fatalf("the next try is %v later, want 3 s to 3.19 s", pause)
		}
		if again, _ := l.Renew(next.Add(-time.Nanosecond)); again != nil {
			t.Fatal("renewed again too soon")
		}
		if again, _ := l.Renew(next); again == nil {
			t.Fatal("not renewed again when that was due")
		}
	}
}

// A lease that ends before that is looked at when it ends.
func TestRenewalPostponedPastTheEnd(t *testing.T) {
	l := lease.Granted(start, 10*sec)
	now := l.Until().Add(-2 * sec)
	l.Renew(now)
	if next := l.Postponed(now, 3*sec); !next.Equal(l.Until()) {
		t.Errorf("the next look is %v before the end, want none before that", l.Until().Sub(next))
	}
	if again, _ := l.Renew(l.Until()); again != nil {
		t.Error("renewed before the time that the guard has named")
	}
}

// A Refresh that is confirmed meanwhile begins anew.
func TestRefreshEndsPostponement(t *testing.T) {
	l := lease.Granted(start, 10*sec)
	now := at(4 * sec)
	renewal, _ := l.Renew(now)
	l.Postponed(now, 5*sec)
	l.Renewed(renewal, at(4*sec)) // for example the answer to another renewal
	wantTime(t, "the next look", l.Due(), 4*sec+9899*ms/3)
	if again, _ := l.Renew(l.Due()); again == nil {
		t.Error("not renewed when that was due")
	}
}
