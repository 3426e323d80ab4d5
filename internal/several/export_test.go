package several

import "time"

// CertainAt returns for how long a key at a place certainly lasts, if it lasts for left now: refreshes that were not
// answered there may still be executed.
func (l *Lock) CertainAt(i int, left time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[i].refreshes.Certain(left)
}
