package health

import (
	"cmp"
	"sync"
	"time"
)

// Server is what is known of one server of quorums: how it answers the obtains of all Clients of its Redis client, and which
// mends wait for it. It is safe for concurrent use. The zero value is a server that was never asked.
type Server struct {
	mu      sync.Mutex    // protects the fields below
	usual   time.Duration // how long answers took lately, a moving average; 0 before the first
	first   time.Time     // when the first answer came
	counted time.Time     // when usual last changed
	calls   int           // under way
	heard   time.Time     // when the last answer came, or when the first of the calls under way began
	down    bool          // the last call was not answered, or not within the patience
	probe   time.Time     // when the next call may go to a server that is down
	latest  Call          // that was sent since the last answer; nil for none
	failure error         // of those before it; nil for none

	mends   int               // of calls
	waiting map[Lock]struct{} // kept locks that wait for a mend
	alarm   *time.Timer       // calls startMends; nil if nothing waits
}

// Admit reports whether to send a call to the server. The caller calls Ended when an admitted call has ended. While the
// server does not answer, one call a second goes out to see whether it answers again. A server that was heard within least
// counts as one that answers.
func (s *Server) Admit(now time.Time, keys int, least time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admitLocked(now, keys, least)
}

func (s *Server) admitLocked(now time.Time, keys int, least time.Duration) bool {
	s.down = !s.isUpLocked(now, keys)
	if s.down && s.calls > 0 && now.Before(s.probe) && now.Sub(s.heard) > least {
		return false
	}
	if s.down {
		s.probe = now.Add(probeInterval)
	}
	if s.calls == 0 {
		s.heard = now
	}
	s.calls++
	return true
}

// IsUp reports whether the server answers: its last call was answered, and none has waited for too long since.
func (s *Server) IsUp(now time.Time, keys int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isUpLocked(now, keys)
}

func (s *Server) isUpLocked(now time.Time, keys int) bool {
	return !s.down && (s.calls == 0 || now.Sub(s.heard) <= s.patienceLocked(now, keys, 0, NoLimit))
}

// Ended notes that a call has ended, how long it took, and whether the server has answered it.
func (s *Server) Ended(now time.Time, took time.Duration, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	if !answered {
		s.down = true
		return
	}
	s.up(now)
	if now.Add(-took).Before(s.counted) { // calls that were under way together may have waited for the same thing
		return
	}
	s.counted = now
	// One answer says little, because the server may have hung until now. So one answer at most doubles the average.
	if s.usual == 0 {
		s.usual, s.first = min(took, LeastPatience/10), now
	} else {
		s.usual = min((7*s.usual+took)/8, 2*s.usual)
	}
	s.usual = max(s.usual, 1)
}

// Call is a call on its way to a server.
type Call interface {
	Failure() error // how it was last sent in vain; nil if it was not
}

// Sent notes a call that was admitted, for Failure.
func (s *Server) Sent(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.latest = s.failureLocked(), c
}

// Failure returns how a call was last sent in vain, by itself or by the resends of one under way, since the server last
// answered; nil if none was.
func (s *Server) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failureLocked()
}

func (s *Server) failureLocked() error {
	if s.latest == nil {
		return nil
	}
	return cmp.Or(s.latest.Failure(), s.failure)
}

// Answered notes that the server has answered a call that Admit does not know of.
func (s *Server) Answered(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up(now)
}

// up notes that the server answers. If it was down, the mends that wait start now, and not at the next probe. The caller
// holds s.mu.
func (s *Server) up(now time.Time) {
	if s.down && s.alarm != nil {
		s.alarm.Reset(0)
	}
	s.heard, s.down = now, false
	s.latest, s.failure = nil, nil
}

// How long to wait for a server of a quorum.
const (
	// LeastPatience is how long a server of a quorum may take for an answer before it counts as absent, unless it
	// usually takes longer.
	LeastPatience = 100 * time.Millisecond

	// FirstPatience is the same for a server that had not answered yet when the call began, if others have. It is also the
	// least for a server without which there is no majority.
	FirstPatience = 250 * time.Millisecond

	// LongPatience is the same if no server has answered yet, because all may be far away, or if there is no majority without
	// the server.
	LongPatience = 2 * time.Second

	// keyPatience is what each key adds.
	keyPatience = 20 * time.Microsecond

	// probeInterval is the time between the calls to a server that does not answer.
	probeInterval = time.Second

	// NoLimit is a limit that limits nothing.
	NoLimit = time.Hour
)

// Patience returns how long to wait for the answer to a call of the server that began then: 0 if answers usually take longer
// than limit. fastest is how long the first answer of any server in the same round took; 0 if none has come.
func (s *Server) Patience(began time.Time, keys int, fastest, limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.patienceLocked(began, keys, fastest, limit)
}

func (s *Server) patienceLocked(began time.Time, keys int, fastest, limit time.Duration) time.Duration {
	patience := LongPatience
	switch {
	case s.usual > limit:
		return 0
	case s.usual > 0 && !began.Before(s.first): // those that began before that make connections first
		patience = max(LeastPatience, 4*s.usual)
	case fastest > 0:
		patience = max(FirstPatience, 2*fastest)
	}
	return min(patience, limit) + time.Duration(keys)*keyPatience
}

// Usually returns how long answers of the server take lately; 0 if it has never answered.
func (s *Server) Usually() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usual
}
