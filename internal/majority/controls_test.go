package majority

import (
	"os"
	"strings"
	"testing"
	"time"
)

const ms, sec = time.Millisecond, time.Second

// A script is a world in which a test says what the network does. Whatever passes takes 1 ms.
type script struct {
	*world
	links []link
}

// A link is the way to one server and back.
type link struct {
	requests, replies fate
	waiting           []func()
}

type fate int

const (
	pass fate = iota
	vanish
	wait // until the link delivers
)

func newScript(servers, need int, off rule) *script {
	s := &script{world: newWorld(servers, need, off), links: make([]link, servers)}
	s.travel = func(i int, back bool, arrive func()) bool {
		l := &s.links[i]
		f := l.requests
		if back {
			f = l.replies
		}
		switch f {
		case pass:
			s.after(ms, arrive)
		case wait:
			l.waiting = append(l.waiting, arrive)
		default:
		}
		return f != vanish
	}
	return s
}

// requests says what happens to requests from now on. Servers are counted from 1.
func (s *script) requests(f fate, servers ...int) {
	for _, i := range servers {
		s.links[i-1].requests = f
	}
}

// replies says what happens to replies from now on.
func (s *script) replies(f fate, servers ...int) {
	for _, i := range servers {
		s.links[i-1].replies = f
	}
}

// deliver delivers what waits, in order, and lets pass what comes next.
func (s *script) deliver(servers ...int) {
	for _, i := range servers {
		l := &s.links[i-1]
		l.requests, l.replies = pass, pass
		for _, arrive := range l.waiting {
			s.after(ms, arrive)
		}
		l.waiting = nil
	}
}

func (s *script) forgets(server int) { s.forget(server - 1) }

// operator deletes the keys of a lock on some servers.
func (s *script) operator(l *lock, servers ...int) {
	at := make([]bool, len(s.servers))
	for _, i := range servers {
		at[i-1] = true
	}
	s.remove(l.token, at)
}

// obtain begins one round of an Obtain.
func (s *script) obtain(d time.Duration) *lock {
	l := s.newLock(s.newToken(), d)
	l.obtain(func(bool) {})
	return l
}

// controls are the interleavings of doc.go, one for each rule or part of one.
var controls = []struct {
	rule string
	without
	name    string
	servers int
	need    int
	happens func(s *script)
}{
	{"1", off(ownToken), "a release of an earlier round arrives late", 3, 2, func(s *script) {
		s.requests(vanish, 2, 3)
		a := s.obtain(sec)
		s.run(99 * ms)
		s.requests(wait, 1, 2, 3) // the releases
		s.run(150 * ms)
		s.requests(pass, 1, 2, 3)
		t := a.token
		if s.on(ownToken) {
			t = s.newToken()
		}
		s.newLock(t, sec).obtain(func(bool) {})
		s.run(170 * ms)
		s.deliver(1, 2)
		s.run(175 * ms)
		s.obtain(sec)
		s.run(180 * ms)
	}},
	{"2", off(fromSending), "a grant arrives late", 3, 2, func(s *script) {
		s.replies(wait, 1, 2)
		s.replies(vanish, 3)
		s.obtain(100 * ms)
		s.run(50 * ms)
		s.deliver(1, 2)
		s.run(105 * ms)
		s.obtain(sec)
		s.run(110 * ms)
	}},
	{"2b", edit("return times[need-1]", "return times[0]"),
		"one server grants later than another", 3, 2, func(s *script) {
			s.requests(vanish, 2, 3)
			s.obtain(sec)
			s.run(30 * ms)
			s.requests(pass, 2)
			s.run(1005 * ms)
			s.requests(pass, 3)
			s.obtain(sec)
			s.run(1010 * ms)
		}},
	{"3", edit(`if c.IsConfirmed() {
		l.count(c, i)`, `if l.last != nil && c.Kind == Refresh { // each place for itself
		l.holds[i].until = until
	}
	if c.IsConfirmed() {
		l.count(c, i)`), "two Refreshes are confirmed by one server each", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(10 * ms)
		s.requests(vanish, 1, 3)
		a.refresh(10*sec, 150*ms)
		s.run(210 * ms)
		s.forgets(2)
		s.requests(pass, 1)
		s.requests(vanish, 2)
		a.refresh(10*sec, 150*ms)
		s.run(1100 * ms)
		s.requests(pass, 2, 3)
		s.obtain(sec)
		s.run(1110 * ms)
	}},
	{"3b", edit(`if c.IsConfirmed() {
		l.count(c, i)`, `if c.Kind == Renewal { // each place for itself
		l.holds[i].until = until
	}
	if c.IsConfirmed() {
		l.count(c, i)`), "two renewals are confirmed by one server each", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(330 * ms)
		s.requests(vanish, 1, 3)
		a.renew()
		s.run(530 * ms)
		s.forgets(2)
		s.requests(pass, 1)
		s.requests(vanish, 2)
		a.renew()
		s.run(1010 * ms)
		s.requests(pass, 2, 3)
		s.obtain(sec)
		s.run(1020 * ms)
	}},
	{"3c", edit("earlier(c.parts[i].until, c.until)", "c.parts[i].until"),
		"renewals are sent again at some servers", 5, 3, func(s *script) {
			a := s.obtain(sec)
			s.run(330 * ms)
			s.requests(vanish, 1, 2)
			a.renew() // 3, 4 and 5 confirm it
			s.run(340 * ms)
			s.requests(vanish, 3)
			a.renew() // 4 and 5 confirm it
			s.run(385 * ms)
			s.requests(pass, 1, 2) // where the first round is sent again
			s.run(395 * ms)
			s.requests(vanish, 1) // 2 confirms the second round, and makes a majority
			s.run(410 * ms)
			s.forgets(1)
			s.run(455 * ms)
			s.requests(pass, 3) // so does 3, much later than 4 and 5
			s.run(1345 * ms)
			s.requests(pass, 1)
			s.obtain(sec)
			s.run(1350 * ms)
		}},
	{"4", edit(`out.Lost = c.Kind != Attach
		l.lose(r.Place)`, ""), "a server of a bare majority says that it has lost the key", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(10 * ms)
		s.requests(vanish, 3)
		a.refresh(10*sec, 150*ms)
		s.run(200 * ms)
		s.forgets(1)
		a.renew()
		s.run(1100 * ms)
		s.requests(pass, 3)
		s.obtain(sec)
		s.run(1110 * ms)
	}},
	{"4b", edit("c.parts[i].until = time.Time{}", "_ = c"),
		"a server confirms a Refresh, and loses the key before a majority has confirmed it", 3, 2, func(s *script) {
			a := s.obtain(sec)
			s.run(10 * ms)
			s.requests(wait, 2, 3)
			a.refresh(10*sec, 150*ms) // 1 confirms it
			s.run(20 * ms)
			s.requests(pass, 2, 3)
			s.forgets(1)
			a.renew() // and the next round, with which 1 gets the key again
			s.run(25*ms + ms/2)
			s.requests(vanish, 1)
			s.run(30 * ms)
			s.requests(vanish, 3)
			s.deliver(2)
			s.run(1300 * ms)
			s.requests(pass, 1, 3)
			s.obtain(sec)
			s.run(1310 * ms)
		}},
	{"4c", edit("l.forsake() // 4c", ""),
		"a server forgets a lock that has too few places, and another one grants the key", 3, 2, func(s *script) {
			s.requests(wait, 3)
			a := s.obtain(sec)
			s.run(10 * ms)
			s.forgets(1)
			s.requests(vanish, 2)
			a.renew() // 1 says that the key is gone
			s.run(20 * ms)
			s.forgets(2)
			s.requests(pass, 2)
			s.deliver(3)
			s.run(25 * ms)
			s.obtain(sec)
			s.run(30 * ms)
		}},
	{"5", edit("l.limit(c, i, now) // 5", "_ = i"),
		"a Refresh to a shorter ttl is not answered", 3, 2, func(s *script) {
			a := s.obtain(sec)
			s.run(100 * ms)
			s.replies(vanish, 1, 2, 3)
			a.refresh(200*ms, 150*ms)
			s.run(450 * ms)
			s.replies(pass, 1, 2, 3)
			s.obtain(sec)
			s.run(460 * ms)
		}},
	{"5b", edit("!c.sent && !c.isAsked()", "!c.isAsked()"),
		"a Refresh was sent to one server only", 3, 2, func(s *script) {
			a := s.obtain(sec)
			s.run(50 * ms)
			s.forgets(1)
			s.run(100 * ms)
			s.gate = func(_ *Call, i int) (time.Duration, bool) { return 20 * ms, i < 2 }
			a.refresh(200*ms, 150*ms) // 3 confirms it
			s.run(130 * ms)
			s.gate = sendsAll
			s.run(350 * ms)
			s.obtain(sec)
			s.run(360 * ms)
		}},
	{"5c", edit("c == l.newest && !c.sent", "c.Kind == Refresh && !c.sent"),
		"a Refresh was not sent, and another one to a longer ttl is not answered", 3, 2, func(s *script) {
			a := s.obtain(sec)
			s.run(100 * ms)
			s.gate = func(*Call, int) (time.Duration, bool) { return 20 * ms, true }
			a.refresh(200*ms, 10*ms)
			s.run(110 * ms)
			s.gate = sendsAll
			s.replies(vanish, 1, 2, 3)
			a.refresh(400*ms, 100*ms)
			s.run(650 * ms)
			s.replies(pass, 1, 2, 3)
			s.obtain(sec)
			s.run(660 * ms)
		}},
	{"5d", edit("l.limit(other, i, now) // 5d", "_ = now"),
		"a server that gets the key back is asked for a Refresh", 3, 2, func(s *script) {
			a := s.obtain(sec)
			s.run(50 * ms)
			s.admission = func() time.Duration { return 50 * ms }
			s.forgets(3)
			a.renew()
			s.run(60 * ms)
			s.gate = func(*Call, int) (time.Duration, bool) { return 500 * ms, true }
			a.refresh(200*ms, 600*ms)
			s.gate = sendsAll
			a.renew()
			s.run(105 * ms)
			s.requests(wait, 3)
			s.run(115 * ms)
			s.forgets(1)
			s.deliver(3)
			s.run(400 * ms)
			s.obtain(sec)
			s.run(410 * ms)
		}},
	{"6a", off(abandoned), "a server confirms a Refresh that has failed", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(10 * ms)
		s.requests(wait, 1)
		s.requests(vanish, 3)
		a.refresh(10*sec, 20*ms) // 2 confirms it
		s.run(40 * ms)
		s.forgets(2)
		s.deliver(1)
		s.run(1100 * ms)
		s.requests(pass, 3)
		s.obtain(sec)
		s.run(1110 * ms)
	}},
	{"6b", edit("l.endCalls() // 6b", ""),
		"renewals were under way before a Refresh to a shorter ttl", 3, 2, func(s *script) {
			a := s.obtain(sec)
			s.run(100 * ms)
			s.replies(wait, 1, 2, 3)
			a.renew()
			s.run(105 * ms)
			s.replies(vanish, 1, 2, 3)
			a.refresh(200*ms, 40*ms)
			s.run(150 * ms)
			s.deliver(1, 2, 3)
			s.requests(vanish, 1, 2, 3)
			s.run(400 * ms)
			s.requests(pass, 1, 2, 3)
			s.obtain(sec)
			s.run(410 * ms)
		}},
	{"6c", edit(`case l.lapsed:
		l.endCalls()`, "case l.lapsed:"), "a Refresh began before the lapse", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(970 * ms)
		s.replies(wait, 2)
		s.requests(vanish, 3)
		a.refresh(10*sec, 300*ms) // 1 confirms it
		s.run(995 * ms)
		s.forgets(1)
		s.requests(pass, 3)
		s.run(1005 * ms)
		s.obtain(sec)
		s.run(1010 * ms)
		s.deliver(2)
		s.run(1020 * ms)
	}},
	{"7", off(limits), "a Refresh to a shorter ttl is stuck", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(100 * ms)
		s.requests(wait, 1, 2, 3)
		a.refresh(400*ms, 50*ms)
		s.run(300 * ms)
		s.requests(pass, 1, 2, 3)
		a.refresh(10*sec, 50*ms)
		s.run(310 * ms)
		s.deliver(1, 2, 3)
		s.run(800 * ms)
		s.obtain(sec)
		s.run(810 * ms)
	}},
	{"8a", edit("h.state == acquiring || h.takes > 0", "h.state == acquiring"),
		"requests of the Obtain arrive after the lapse, and after another holder", 3, 2, func(s *script) {
			s.requests(wait, 1, 2, 3)
			a := s.obtain(sec)
			s.run(30 * ms)
			s.requests(pass, 1, 2, 3) // where it is sent again
			s.run(1100 * ms)
			b := s.obtain(sec)
			s.run(1110 * ms)
			b.release()
			s.run(1150 * ms)
			s.deliver(1, 2, 3)
			s.run(1160 * ms)
			a.refresh(sec, 50*ms)
			s.run(1170 * ms)
		}},
	{"8b", edit("if h.change == r.change {", "if true {"),
		"a grant arrives after the lapse, and after another holder", 3, 2, func(s *script) {
			s.requests(wait, 3)
			a := s.obtain(100 * ms)
			s.run(10 * ms)
			s.requests(vanish, 2)
			a.refresh(10*sec, 20*ms) // 1 confirms it
			s.run(100 * ms)
			s.requests(pass, 2, 3)
			s.run(105 * ms)
			b := s.obtain(sec)
			s.run(110 * ms)
			b.release()
			s.run(125 * ms)
			s.deliver(3)
			s.run(130 * ms)
			a.refresh(sec, 50*ms)
			s.run(140 * ms)
		}},
	{"9", edit(`out.Lost = c.Kind != Attach
		l.lose(r.Place)`, `l.lose(r.Place)
		if l.last != nil {
			out.Asks = []Request{l.Mend(r.Place)}
		}`), "an operator deletes the keys, and the servers say so one after the other", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(300 * ms)
		s.operator(a, 1, 2, 3)
		s.replies(wait, 2, 3)
		a.renew()
		s.run(310 * ms)
		s.deliver(2)
		s.run(320 * ms)
		s.deliver(3)
		s.run(330 * ms)
		a.renew()
		s.run(340 * ms)
	}},
	{"9b", edit(" && number > h.since {", " {"),
		"an operator deletes the keys on a majority while a renewal is under way", 3, 2, func(s *script) {
			a := s.obtain(sec)
			s.run(300 * ms)
			s.requests(wait, 2)
			s.replies(wait, 3)
			a.renew() // 1 and 3 confirm it
			s.run(305 * ms)
			s.operator(a, 1, 2)
			s.requests(wait, 1)
			s.deliver(2)
			s.run(308 * ms)
			s.deliver(3)
			s.run(320 * ms)
			s.deliver(1)
			s.run(330 * ms)
		}},
	{"9c", edit("if lease.PassedBy(now, l.Until(now)) || l.ttl == 0", "if l.look(now); l.ttl == 0"),
		"a mend is admitted after the lapse, and after another holder", 3, 2, func(s *script) {
			s.admission = func() time.Duration { return 125 * ms }
			s.requests(vanish, 3)
			s.gate = func(_ *Call, i int) (time.Duration, bool) { return 0, s.links[i].requests == vanish && i == 2 }
			a := s.obtain(100 * ms)
			s.run(10 * ms)
			s.requests(vanish, 2)
			a.refresh(10*sec, 20*ms) // 1 confirms it
			s.run(100 * ms)
			s.requests(pass, 2, 3)
			s.run(105 * ms)
			b := s.obtain(sec)
			s.run(110 * ms)
			b.release()
			s.run(140 * ms)
			a.refresh(sec, 50*ms)
			s.run(150 * ms)
		}},
	{"10", off(keepsWhileHeld), "what a mend without an answer has acquired is given back", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(300 * ms)
		s.forgets(1)
		a.renew()
		s.run(303 * ms)
		s.replies(vanish, 1)
		s.run(470 * ms)
		s.requests(wait, 1) // the release
		s.run(650 * ms)
		s.requests(pass, 1)
		s.replies(pass, 1)
		a.renew()
		s.run(660 * ms)
		s.forgets(2)
		s.deliver(1)
		s.run(670 * ms)
		s.obtain(sec)
		s.run(680 * ms)
	}},
	{"10b", off(freesLate), "a grant arrives after the Release", 3, 2, func(s *script) {
		s.requests(wait, 3)
		a := s.obtain(sec)
		s.run(10 * ms)
		a.release()
		s.run(125 * ms)
		s.deliver(3)
		s.run(sec)
	}},
}

// Each interleaving breaks a promise without the rule, and none with it. A rule of the Lock is edited out of lock.go. This
// takes a build for each of them, for which REDISLOCK_TEST_CONTROLS=1 asks.
func TestControls(t *testing.T) {
	t.Parallel()
	rebuilds := os.Getenv("REDISLOCK_TEST_CONTROLS") != ""
	built := os.Getenv(edited) // without this rule
	for _, c := range controls {
		t.Run(c.rule, func(t *testing.T) {
			play := func(off rule, looks bool) *script {
				s := newScript(c.servers, c.need, off)
				s.tidy, s.truthful = true, off == 0 && built == "" // a lie is broken before the promise of the interleaving
				s.glance = func() bool { return looks }
				c.happens(s)
				return s
			}
			breaks := func(s *script) {
				if s.problem == "" {
					t.Errorf("%s: without the rule, no promise is broken", c.name)
				}
				t.Logf("%s: %s", c.name, s.problem)
			}
			if built != "" {
				breaks(play(0, false))
				return
			}
			for _, looks := range []bool{false, true} {
				if s := play(0, looks); s.problem != "" {
					t.Errorf("%s: with the rule, %s", c.name, s.problem)
				}
			}
			if c.off > 0 {
				breaks(play(c.off, false))
				return
			}
			if _, err := edits([]without{c.without}); err != nil {
				t.Error(err)
			}
			if !rebuilds {
				return
			}
			output, err := rebuilt(t, []without{c.without}, c.rule, "^TestControls$/^"+c.rule+"$")
			if err != nil || !strings.Contains(output, c.name) {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// A server that has forgotten a lock gets the key again, and all handles of the lock find it.
func TestMend(t *testing.T) {
	t.Parallel()
	s := newScript(3, 2, 0)
	a := s.obtain(sec)
	s.run(10 * ms)
	b := s.newLock(a.token, sec)
	b.attach(func(bool) {})
	s.run(20 * ms)
	for server := range s.servers {
		s.forget(server)
		b.refresh(sec, 10*ms)
		s.run(s.now + 10*ms)
	}
	a.renew()
	s.run(s.now + 10*ms)
	for i, server := range s.servers {
		if !server.holds(a.token) || a.holds[i].state != held || b.holds[i].state != held {
			t.Errorf("server %d: %v, and the handles know %v and %v", i+1, server.holds(a.token), a.holds[i], b.holds[i])
		}
	}
	if s.problem != "" {
		t.Error(s.problem)
	}
}

// While a Refresh waits to be sent, a server may not forget if others have a lock for as long as the Refresh leaves only: it
// may turn out that the Refresh is sent to no server, and then the lock lasts as long as before.
func TestUnsentRefresh(t *testing.T) {
	t.Parallel()
	s := newScript(3, 2, 0)
	a := s.obtain(sec)
	s.run(10 * ms)
	s.requests(vanish, 3)
	a.refresh(10*sec, 150*ms) // 1 and 2 confirm it
	s.run(200 * ms)
	s.gate = func(*Call, int) (time.Duration, bool) { return 50 * ms, true }
	a.refresh(200*ms, 100*ms)
	if s.holding(a) != 3 || s.allSpare(0) || !s.allSpare(2) {
		t.Errorf("%d servers have the lock until %v, and it does not need 1: %v, 3: %v",
			s.holding(a), a.lasts(), s.allSpare(0), s.allSpare(2))
	}
	s.run(240 * ms)
	if a.lasts() > 400*ms {
		t.Errorf("the lock is valid until %v, although the Refresh may yet be sent", a.lasts())
	}
	s.run(260 * ms)
	if a.lasts() < 9*sec {
		t.Errorf("the lock is valid until %v, although the Refresh was not sent", a.lasts())
	}
	s.gate = sendsAll
	a.refresh(200*ms, 100*ms)
	if !s.allSpare(0) {
		t.Error("the lock needs server 1, although the Refresh was sent")
	}
}

// A mend that is stuck does not keep the next round from asking the place again. The end of the lock gives back what both
// have acquired.
func TestOvertaking(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} { // the mend that is stuck arrives after the end
		s := newScript(3, 2, 0)
		s.tidy, s.truthful = true, true
		a := s.obtain(sec)
		s.run(300 * ms)
		s.forgets(3)
		a.renew() // and the next round, whose mend is stuck
		s.run(303*ms + ms/2)
		s.requests(wait, 3)
		s.run(320 * ms)
		if !a.IsAcquiring(2) || s.seen[overtakings] > 0 {
			t.Fatalf("the place is %v, and was overtaken %d times", a.holds[2], s.seen[overtakings])
		}
		a.renew()
		s.run(322*ms + ms/2)
		if !late {
			s.deliver(3)
			s.run(323*ms + ms/2)
			if !s.servers[2].holds(a.token) || a.holds[2].state != acquiring {
				t.Errorf("when both requests have arrived, the place is %v", a.holds[2])
			}
			s.run(330 * ms)
			if a.holds[2].state != held {
				t.Errorf("when both requests are answered, the place is %v", a.holds[2])
			}
		}
		a.release()
		s.requests(pass, 3)
		s.run(440 * ms) // the requests of the Release have arrived
		s.deliver(3)
		s.run(sec)
		if s.seen[overtakings] != 1 {
			t.Errorf("%d mends have overtaken others", s.seen[overtakings])
		}
		if s.problem != "" {
			t.Error(s.problem)
		}
	}
}

// A loss is no lapse: a Refresh that finds one goes on, because an answer of the Attach is on its way.
func TestLoss(t *testing.T) {
	t.Parallel()
	s := newScript(3, 2, 0)
	a := s.obtain(sec)
	s.run(10 * ms)
	s.replies(wait, 3)
	b := s.newLock(a.token, sec)
	b.attach(func(bool) {})
	s.run(20 * ms)
	s.forget(0)
	b.refresh(sec, 100*ms)
	s.run(30 * ms)
	if b.isValid() {
		t.Error("the lock is valid, although one server of two has lost the key")
	}
	s.deliver(3)
	s.run(40 * ms)
	if !b.isValid() || b.lapsed {
		t.Error("the lock is not valid, although two servers have confirmed the Refresh")
	}
}
