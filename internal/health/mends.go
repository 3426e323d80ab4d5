package health

import "time"

// Lock is a kept lock at several places, one of which misses its keys.
type Lock interface {
	// Mend acquires the keys again where they are missing, as far as the servers admit that. It does not block.
	Mend()
}

// maxMends bounds the mends under way at one server. Each has a goroutine, and when a server hangs, all kept locks of
// all Clients lose their holds there at about the same time.
const maxMends = 16

// AdmitMend is Admit for a mend, which must call MendEnded afterwards. A kept lock whose mend it refuses waits: its Mend is
// called when there is room and the server answers, or is to be asked whether it does.
func (h *Server) AdmitMend(now time.Time, keys int, lock Lock, kept bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mends < maxMends && h.admitLocked(now, keys) {
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

// Forget makes sure that a lock does not wait for a mend.
func (h *Server) Forget(lock Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, lock)
}

// startMends starts mends that wait, as many as there is room for.
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
	for _, lock := range next { // not while h.mu is locked: a mutex of the lock comes before it
		lock.Mend()
	}
}

// planMends calls startMends in a while. The caller holds h.mu.
func (h *Server) planMends() {
	if h.alarm == nil {
		h.alarm = time.AfterFunc(probeInterval, h.startMends)
	}
}

// up notes that the server answers. Mends that wait need not wait for the next probe. The caller holds h.mu.
func (h *Server) up(now time.Time) {
	if h.down && h.alarm != nil {
		h.alarm.Reset(0)
	}
	h.heard, h.down = now, false
}

// Answers notes that the server has answered a call that Admit does not know of.
func (h *Server) Answers(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up(now)
}
