package health

import "time"

// Lock is a kept lock at several places, one of which misses its keys.
type Lock interface {
	// Mend acquires the keys again at those places that miss them and admit a mend now. It does not block.
	Mend()
}

// maxMends bounds the mends under way at one server. Each has a goroutine, and when a server hangs, the kept locks of all
// Clients lose it at about the same time.
const maxMends = 16

// AdmitMend is Admit for a mend. The caller calls MendEnded when an admitted mend has ended. A kept lock whose mend is not
// admitted waits: its Mend is called when the server answers and has room, or at the next probe.
func (s *Server) AdmitMend(now time.Time, keys int, lock Lock, kept bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mends < maxMends && s.admitLocked(now, keys, 0) {
		s.mends++
		return true
	}
	if kept {
		s.awaitLocked(lock)
	}
	return false
}

// Await makes a kept lock wait for a mend.
func (s *Server) Await(lock Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitLocked(lock)
}

func (s *Server) awaitLocked(lock Lock) {
	if s.waiting == nil {
		s.waiting = map[Lock]struct{}{}
	}
	s.waiting[lock] = struct{}{}
	s.planMends()
}

// MendEnded is Ended for a mend.
func (s *Server) MendEnded(now time.Time, took time.Duration, answered bool) {
	s.Ended(now, took, answered)
	s.mu.Lock()
	s.mends--
	s.mu.Unlock()
	if answered {
		s.startMends()
	}
}

// Forget ends the waiting of a lock, if it waits.
func (s *Server) Forget(lock Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, lock)
}

// startMends calls Mend of as many waiting locks as there is room for.
func (s *Server) startMends() {
	s.mu.Lock()
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
	var next []Lock
	for lock := range s.waiting {
		if s.mends+len(next) >= maxMends {
			break
		}
		delete(s.waiting, lock)
		next = append(next, lock)
	}
	if len(s.waiting) > 0 {
		s.planMends()
	}
	s.mu.Unlock()
	for _, lock := range next { // not while s.mu is locked: the mutex of a lock is locked before s.mu
		lock.Mend()
	}
}

// planMends makes startMends be called at the next probe. The caller holds s.mu.
func (s *Server) planMends() {
	if s.alarm == nil {
		s.alarm = time.AfterFunc(probeInterval, s.startMends)
	}
}
