package rules

import (
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
	rule    rule
	name    string
	servers int
	need    int
	happens func(s *script)
}{
	{ownToken, "1 a release of an earlier round arrives late", 3, 2, func(s *script) {
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
	{fromSending, "2 a grant arrives late", 3, 2, func(s *script) {
		s.replies(wait, 1, 2)
		s.replies(vanish, 3)
		s.obtain(100 * ms)
		s.run(50 * ms)
		s.deliver(1, 2)
		s.run(105 * ms)
		s.obtain(sec)
		s.run(110 * ms)
	}},
	{needth, "2b one server grants later than another", 3, 2, func(s *script) {
		s.requests(vanish, 2, 3)
		s.obtain(sec)
		s.run(30 * ms)
		s.requests(pass, 2)
		s.run(1005 * ms)
		s.requests(pass, 3)
		s.obtain(sec)
		s.run(1010 * ms)
	}},
	{sameCall, "3 two Refreshes are confirmed by one server each", 3, 2, func(s *script) {
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
	{commonRounds, "3b two renewals are confirmed by one server each", 3, 2, func(s *script) {
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
	{oneEnd, "3c renewals are sent again at some servers", 5, 3, func(s *script) {
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
	{foundLost, "4 a server of a bare majority says that it has lost the key", 3, 2, func(s *script) {
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
	{lowers, "5 a Refresh to a shorter ttl is not answered", 3, 2, func(s *script) {
		a := s.obtain(sec)
		s.run(100 * ms)
		s.replies(vanish, 1, 2, 3)
		a.refresh(200*ms, 150*ms)
		s.run(450 * ms)
		s.replies(pass, 1, 2, 3)
		s.obtain(sec)
		s.run(460 * ms)
	}},
	{abandoned, "6a a server confirms a Refresh that has failed", 3, 2, func(s *script) {
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
	{refreshEnds, "6b renewals were under way before a Refresh to a shorter ttl", 3, 2, func(s *script) {
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
	{lapseEnds, "6c a Refresh began before the lapse", 3, 2, func(s *script) {
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
	{limits, "7 a Refresh to a shorter ttl is stuck", 3, 2, func(s *script) {
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
	{lapseForgets, "8a requests of the Obtain arrive after the lapse, and after another holder", 3, 2, func(s *script) {
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
	{ofThisHold, "8b a grant arrives after the lapse, and after another holder", 3, 2, func(s *script) {
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
	{mendConfirmed, "9 an operator deletes the keys, and the servers say so one after the other", 3, 2, func(s *script) {
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
	{mendSince, "9b an operator deletes the keys on a majority while a renewal is under way", 3, 2, func(s *script) {
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
	{keepsWhileHeld, "10 what a mend without an answer has acquired is given back", 3, 2, func(s *script) {
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
	{freesLate, "10b a grant arrives after the Release", 3, 2, func(s *script) {
		s.requests(wait, 3)
		a := s.obtain(sec)
		s.run(10 * ms)
		a.release()
		s.run(125 * ms)
		s.deliver(3)
		s.run(sec)
	}},
}

// Each interleaving breaks a promise without the rule, and none with it.
func TestControls(t *testing.T) {
	t.Parallel()
	shown := rule(0)
	for _, c := range controls {
		shown |= c.rule
		t.Run(c.name, func(t *testing.T) {
			play := func(off rule) *script {
				s := newScript(c.servers, c.need, off)
				s.tidy = true
				c.happens(s)
				return s
			}
			if s := play(0); s.problem != "" {
				t.Errorf("with the rule, %s", s.problem)
			}
			s := play(c.rule)
			if s.problem == "" {
				t.Error("without the rule, no promise is broken")
			}
			t.Log(s.problem)
		})
	}
	if all := rule(1)<<len(strings.Fields(ruleNames)) - 1; shown != all {
		t.Errorf("some rule has no control: %b of %b", shown, all)
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
		b.renew()
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
	if !b.isValid() || b.lapsed > 0 {
		t.Error("the lock is not valid, although two servers have confirmed the Refresh")
	}
}
