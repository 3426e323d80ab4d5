package health

import (
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

	mends   int               // of calls
	waiting map[Lock]struct{} // kept locks that wait for a mend
	alarm   *time.Timer       // calls startMends; nil if nothing waits
}

// Admit reports whether to send a call to the server. The caller calls Ended when an admitted call has ended. While the
// server does not answer, one call a second goes out to see whether it answers again. A server that was heard within least
// counts as one that answers.
func (h *Server) Admit(now time.Time, keys int, least time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admitLocked(now, keys, least)
}

func (h *Server) admitLocked(now time.Time, keys int, least time.Duration) bool {
	h.down = !h.isUpLocked(now, keys)
	if h.down && h.calls > 0 && now.Before(h.probe) && now.Sub(h.heard) > least {
		return false
	}
	if h.down {
		h.probe = now.Add(probeInterval)
	}
	if h.calls == 0 {
		h.heard = now
	}
	h.calls++
	return true
}

// IsUp reports whether the server answers: its last call was answered, and none has waited for too long since.
func (h *Server) IsUp(now time.Time, keys int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isUpLocked(now, keys)
}

func (h *Server) isUpLocked(now time.Time, keys int) bool {
	return !h.down && (h.calls == 0 || now.Sub(h.heard) <= h.patienceLocked(now, keys, 0, NoLimit))
}

// Ended notes that a call has ended, how long it took, and whether the server has answered it.
func (h *Server) Ended(now time.Time, took time.Duration, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls--
	if !answered {
		h.down = true
		return
	}
	h.up(now)
	if now.Add(-took).Before(h.counted) { // calls that were under way together may have waited for the same thing
		return
	}
	h.counted = now
	// One answer says little, because the server may have hung until now. So one answer at most doubles the average.
	if h.usual == 0 {
		h.usual, h.first = min(took, LeastPatience/10), now
	} else {
		h.usual = min((7*h.usual+took)/8, 2*h.usual)
	}
	h.usual = max(h.usual, 1)
}

// Answers notes that the server has answered a call that Admit does not know of.
func (h *Server) Answers(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up(now)
}

// up notes that the server answers. If it was down, the mends that wait start now, and not at the next probe. The caller
// holds h.mu.
func (h *Server) up(now time.Time) {
	if h.down && h.alarm != nil {
		h.alarm.Reset(0)
	}
	h.heard, h.down = now, false
}

// How long to wait for a server of a quorum.
const (
	// LeastPatience is how long a server of a quorum may take for an answer before it counts as absent, unless it
	// usually takes longer.
	LeastPatience = 100 * time.Millisecond

	// FirstPatience is the same for a server that had not answered yet when the call began, if others have. It is also the
	// least for a server without which there is no majority.
	FirstPatience = 250 * time.Millisecond

	// LongPatience is the same if no server has answered yet, because all may be far away.
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
func (h *Server) Patience(began time.Time, keys int, fastest, limit time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.patienceLocked(began, keys, fastest, limit)
}

func (h *Server) patienceLocked(began time.Time, keys int, fastest, limit time.Duration) time.Duration {
	patience := LongPatience
	switch {
	case h.usual > limit:
		return 0
	case h.usual > 0 && !began.Before(h.first): // those that began before that make connections first
		patience = max(LeastPatience, 4*h.usual)
	case fastest > 0:
		patience = max(FirstPatience, 2*fastest)
	}
	return min(patience, limit) + time.Duration(keys)*keyPatience
}

// Usually returns how long answers of the server take lately; 0 if it has never answered.
func (h *Server) Usually() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.usual
}
