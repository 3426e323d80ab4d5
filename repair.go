package redislock

import "time"

// maxRepairs bounds the repairs under way at one server. Each has a goroutine, and when a server hangs, all kept locks of
// all Clients lose their holds there at about the same time.
const maxRepairs = 16

// admitRepair is admit for a repair, which must call repairEnded afterwards. A kept lock whose repair it refuses waits:
// its mend is called when there is room and the server answers, or is to be asked whether it does.
func (h *health) admitRepair(now time.Time, keys int, lock *several, kept bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.repairs < maxRepairs && h.admitLocked(now, keys) {
		h.repairs++
		return true
	}
	if kept {
		h.awaitLocked(lock)
	}
	return false
}

// await makes a kept lock wait for a repair.
func (h *health) await(lock *several) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaitLocked(lock)
}

func (h *health) awaitLocked(lock *several) {
	if h.waiting == nil {
		h.waiting = map[*several]struct{}{}
	}
	h.waiting[lock] = struct{}{}
	h.planRepairs()
}

// repairEnded is ended for a repair.
func (h *health) repairEnded(now time.Time, took time.Duration, answered bool) {
	h.ended(now, took, answered)
	h.mu.Lock()
	h.repairs--
	h.mu.Unlock()
	if answered {
		h.startRepairs()
	}
}

// forget makes sure that a lock does not wait for a repair.
func (h *health) forget(lock *several) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, lock)
}

// startRepairs starts repairs that wait, as many as there is room for.
func (h *health) startRepairs() {
	h.mu.Lock()
	if h.alarm != nil {
		h.alarm.Stop()
		h.alarm = nil
	}
	var next []*several
	for lock := range h.waiting {
		if h.repairs+len(next) >= maxRepairs {
			break
		}
		delete(h.waiting, lock)
		next = append(next, lock)
	}
	if len(h.waiting) > 0 {
		h.planRepairs()
	}
	h.mu.Unlock()
	for _, lock := range next { // not while h.mu is locked: a several.mu comes before it
		lock.mend()
	}
}

// planRepairs calls startRepairs in a while. The caller holds h.mu.
func (h *health) planRepairs() {
	if h.alarm == nil {
		h.alarm = time.AfterFunc(probeInterval, h.startRepairs)
	}
}

// up notes that the server answers. Repairs that wait need not wait for the next probe. The caller holds h.mu.
func (h *health) up(now time.Time) {
	if h.down && h.alarm != nil {
		h.alarm.Reset(0)
	}
	h.heard, h.down = now, false
}

// answers notes that the server has answered a call that admit does not know of.
func (h *health) answers(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up(now)
}
