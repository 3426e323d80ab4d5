package majority

import (
	"math/rand/v2"
	"time"
)

type answer int

const (
	silence answer = iota // nobody knows what the server has done, and may do yet
	yes
	no
)

const (
	patience = 60 * time.Millisecond // for the answer to one sending
	sendings = 3                     // of one request at most
)

// A request carries one script to one server. It is sent again when no answer comes. So the server may execute it several
// times, and at any time later. The answer to an older sending never arrives, because its connection is closed.
type request struct {
	w       *world
	place   int
	script  func(s *server) bool
	sending func()         // is called before each sending; may be nil
	ended   func(a answer) // is called once; may be nil
	takes   *token         // what it acquires; nil if it acquires nothing

	sent       time.Duration // the last time
	sendings   int
	unanswered bool // some sending was not answered
	over       bool
}

func (r *request) begin() {
	r.underWay(1)
	r.send()
}

func (r *request) underWay(n int) {
	if r.takes != nil {
		r.takes.acquiring[r.place] += n
	}
}

func (r *request) send() {
	r.sendings++
	n := r.sendings
	r.sent = r.w.now
	if r.sending != nil {
		r.sending()
	}
	if r.w.travel(r.place, false, func() { r.arrive(n) }) {
		r.underWay(1)
	}
	r.w.after(patience, func() {
		if r.over || r.sendings != n {
			return
		}
		r.unanswered = true
		if n < sendings {
			r.send()
		} else {
			r.end(silence)
		}
	})
}

func (r *request) arrive(n int) {
	s := r.w.servers[r.place]
	if s.hangs > r.w.now {
		r.w.after(s.hangs-r.w.now, func() { r.arrive(n) })
		return
	}
	r.underWay(-1)
	a := no
	if r.script(s) {
		a = yes
	}
	r.w.travel(r.place, true, func() {
		if !r.over && r.sendings == n {
			r.end(a)
		}
	})
}

func (r *request) end(a answer) {
	r.over = true
	r.underWay(-1)
	if r.ended != nil {
		r.ended(a)
	}
}

// A weather is how a network treats what it carries, at random.
type weather struct {
	rand *rand.Rand
	w    *world
	lost int           // of 1,000 requests or replies
	slow int           // of 1,000, which take up to 50 ms
	late int           // of 1,000
	most time.Duration // how late these are
}

func (n *weather) chance(of1000 int) bool { return n.rand.IntN(1000) < of1000 }

func (n *weather) upTo(d time.Duration) time.Duration {
	return time.Duration(n.rand.Int64N(int64(d) + 1))
}

// travel carries a request or a reply, or reports that it is lost.
func (n *weather) travel(_ int, _ bool, arrive func()) bool {
	delay := 100*time.Microsecond + n.upTo(300*time.Microsecond)
	switch x := n.rand.IntN(1000); {
	case x < n.lost:
		return false
	case x < n.lost+n.slow:
		delay = n.upTo(50 * time.Millisecond)
	case x < n.lost+n.slow+n.late:
		delay = n.upTo(n.most)
	}
	n.w.after(delay, arrive)
	return true
}
