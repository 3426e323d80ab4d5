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
func (h *Server) AdmitMend(now time.Time, keys int, lock Lock, kept bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mends < maxMends && h.admitLocked(now, keys, 0) {
		h.mends++
		return true
	}
	if kept {
		h.awaitLocked(lock)
	}
	return false
}

// Await makes a kept lock wait for a mend.
func (h *Server) Await(lock Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaitLocked(lock)
}

func (h *Server) awaitLocked(lock Lock) {
	if h.waiting == nil {
		h.waiting = map[Lock]struct{}{}
	}
	h.waiting[lock] = struct{}{}
	h.planMends()
}

// MendEnded is Ended for a mend.
func (h *Server) MendEnded(now time.Time, took time.Duration, answered bool) {
	h.Ended(now, took, answered)
	h.mu.Lock()
	h.mends--
	h.mu.Unlock()
	if answered {
		h.startMends()
	}
}

// Forget ends the waiting of a lock, if it waits.
func (h *Server) Forget(lock Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, lock)
}

// startMends calls Mend of as many waiting locks as there is room for.
func (h *Server) startMends() {
	h.mu.Lock()
	if h.alarm != nil {
		h.alarm.Stop()
		h.alarm = nil
	}
	var next []Lock
	for lock := range h.waiting {
		if h.mends+len(next) >= maxMends {
			break
		}
		delete(h.waiting, lock)
		next = append(next, lock)
	}
	if len(h.waiting) > 0 {
		h.planMends()
	}
	h.mu.Unlock()
	for _, lock := range next { // not while h.mu is locked: the mutex of a lock is locked before h.mu
		lock.Mend()
	}
}

// planMends makes startMends be called at the next probe. The caller holds h.mu.
func (h *Server) planMends() {
	if h.alarm == nil {
		h.alarm = time.AfterFunc(probeInterval, h.startMends)
	}
}
