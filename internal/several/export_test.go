package several

import "time"

// CertainAt returns for how long a key at a place certainly lasts, if it lasts for left now: refreshes that were not
// answered there may still be executed.
func (h *Lock) CertainAt(i int, left time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[i].refreshes.Certain(left)
}
