package line

import (
	"cmp"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// answered takes the result of a call of a beat. sent is false if it was not sent.
func (s *session) answered(b *beat, c *transport.Call, sent bool) {
	p := c.Tag.(part)
	keys := p.keys
	r, err := script.Beaten{}, c.Err
	if sent && err == nil {
		r, err = script.ReadBeaten(keys, c.Reply)
	}
	now, answered := time.Now(), sent && err == nil
	deaf := answered && r.Listeners == 0 && b.subscription != 0 && (s.redis.IsSingle() || s.redis.IsCluster())
	s.mu.Lock()
	if answered {
		b.answered, s.halted = true, false
		s.note(b, c, &r, now)
		s.noteFailure(keys, nil)
	} else {
		b.failed = true
		s.beats.err = cmp.Or(err, fault.ErrUnanswered)
		s.noteFailure(keys, s.beats.err)
		switch {
		case transport.IsFinal(err):
			s.callBackAll(keys) // their own tries may have an error that ends their waits
			s.halted = false
		case !s.beats.failing: // perhaps only the connection was dead
			s.beatBy(now)
		}
		s.beats.failing = true
	}
	b.pending--
	p.pending--
	over := p.pending == 0
	if b.pending == 0 {
		b.silence.Stop()
	}
	switch {
	case b.pending > 0:
	case b.failed && !b.answered:
		for _, id := range b.left {
			s.leave(id)
		}
		if !transport.IsFinal(s.beats.err) {
			s.beatBy(now.Add(s.interval() / 4))
		}
	case !b.failed:
		s.beats.failing = false
		s.beats.lasting = cmp.Or(b.lasting, s.beats.lasting)
	}
	s.tellNext()
	s.mu.Unlock()
	if deaf { // the name of the server leads to another one now
		s.inbox.Doubt(b.subscription)
	}
	if over {
		s.remind(p.firsts)
	}
}

// noteFailure notes how a beat in the lines of these keys has failed; nil if it was answered. The caller holds s.mu.
func (s *session) noteFailure(keys []string, err error) {
	for _, key := range keys {
		if q := s.lines[key]; q != nil {
			q.err = err
		}
	}
}

// failure returns how the session has failed to keep a waiter live that stands in line; nil if it has not.
func (s *session) failure(w *Waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiters[w.member.Number()] != w {
		return nil
	}
	for _, key := range w.keys {
		if err := s.lines[key].err; err != nil {
			return err
		}
	}
	if s.beats.err == nil && time.Since(s.beats.answered) > s.lifeNow() {
		return fault.ErrUnanswered
	}
	return nil
}

// callBackAll calls back all who stand in lines. The caller holds s.mu, and calls tellNext.
func (s *session) callBackAll(keys []string) {
	for _, key := range keys {
		if q := s.lines[key]; q != nil {
			for w := range q.waiters {
				s.callBack(w)
			}
		}
	}
}

// note notes an answer to a beat. The caller holds s.mu, and calls tellNext.
func (s *session) note(b *beat, c *transport.Call, r *script.Beaten, now time.Time) {
	s.beats.took = now.Sub(b.began)
	if known := &s.beats.answers; c.Sent.After(known[0].sent) {
		known[0], known[1] = answer{c.Sent, r.Served}, known[0]
	}
	s.beats.answered, s.beats.err = now, nil
	if r.Silent >= 0 { // the next beat passes the other inbox over
		s.beatBy(now.Add(r.Silent + time.Millisecond))
	}
	if r.Listeners > 0 && b.subscription != 0 && s.confirmed != b.subscription {
		if s.confirmed = b.subscription; s.redis.IsCluster() {
			s.beatBy(now) // which says so to the server
		}
	}
	s.heed(answer{c.Sent, r.Served}, now)
	s.made(r.Missing, r.Served, nil)
	g := c.Tag.(part).group
	for _, f := range r.Firsts {
		if w := s.waiters[f.Number]; w != nil && w != g.apart && (g.apart != nil || w.stands.apart) {
			continue // its own calls, or those that all others share, count its lines
		}
		sum := g.firsts[f.Number]
		if sum == nil {
			sum = &script.First{}
			g.firsts[f.Number] = sum
		}
		sum.Lines += f.Lines
		sum.After = max(sum.After, f.After)
	}
}

// lastBefore returns the last answer to a beat that was sent before a message arrived and was served before that time by the
// server's clock, or this answer to a try if that is later. The lines of a session may be on several nodes of a Cluster,
// whose clocks differ, and then only tries count.
func (s *session) lastBefore(at int64, arrived time.Time, try answer) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.beats.answers {
		if s.redis.IsSingle() && a.served <= at && a.sent.Before(arrived) && a.sent.After(try.sent) {
			return a
		}
	}
	return try
}

// remind makes those waiters try that are first in all of their lines, when all of their keys are free. It remembers those
// who have left.
func (s *session) remind(firsts map[string]*script.First) {
	for number, f := range firsts {
		known := s.inbox.Has(number) // before s.mu is locked
		s.mu.Lock()
		w := s.waiters[number]
		switch {
		case !known:
			s.leave(s.inbox.Name() + "/" + number)
		case w != nil && f.Lines == len(w.keys):
			w.remind(f.After)
		}
		s.mu.Unlock()
	}
}

// leave makes the next beat remove a waiter from the lines in which it is first. The caller holds s.mu.
func (s *session) leave(id string) {
	if len(s.waiters) > 0 && len(s.beats.left) < 10*maxLeft { // without waiters there is no beat
		s.beats.left[id] = struct{}{}
	}
}
