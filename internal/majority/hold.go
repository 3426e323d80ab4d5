package majority

import "time"

// state is what a lock knows of one place; the package documentation draws the transitions.
type state int

const (
	acquiring state = iota
	held
	missing
	freed
)

// hold is what a lock has at one place.
type hold struct {
	state
	change int       // how often the state has changed
	since  int       // how many calls had begun when the loss of the key became known; 0 if the place never had it
	until  time.Time // the end of the last call that the place has confirmed; zero for none
	asked  int       // how many calls had begun when the key was last asked for
	takes  int       // how many requests that acquire are under way, or were never answered
}

func (h *hold) become(s state) {
	h.state = s
	h.change++
}

// heldUntil returns until when the place has the key, as far as is known; the zero time if it is not known to have it.
func (h *hold) heldUntil() time.Time {
	if h.state != held {
		return time.Time{}
	}
	return h.until
}
