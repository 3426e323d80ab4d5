package lease_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/testing/race"
)

// A network and a server are simulated, on which a lock is refreshed and renewed at random: requests are executed late, or
// twice, or after their caller has given up, in any order, and answered late or never. The clocks run apart by up to 1 %.
// Whatever happens, the key is there for as long as the lease says.
func TestModel(t *testing.T) {
	runs := 40_000
	if testing.Short() || race.Enabled {
		runs = 4_000
	}
	var total counts
	for seed := range runs {
		m := newModel(uint64(seed))
		if problem := m.run(); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
		total.confirmed += m.confirmed
		total.renewed += m.renewed
		total.doubted += m.doubted
		total.late += m.late
		total.endless += m.endless
	}
	t.Logf("%+v", total)
	for what, n := range map[string]int{
		"refreshes that succeeded": total.confirmed, "renewals that succeeded": total.renewed,
		"refreshes without an answer": total.doubted, "requests executed after their caller had given up": total.late,
		"keys without expiry that got one": total.endless,
	} {
		if n < runs/10 {
			t.Errorf("only %d %s in %d runs", n, what, runs)
		}
	}
}

// counts says how often each thing happened, so that the model cannot pass because nothing did.
type counts struct{ confirmed, renewed, doubted, late, endless int }

// model is one lock on one simulated server.
type model struct {
	counts
	random *rand.Rand
	now    time.Duration // by the server's clock
	speed  float64       // of the client's clock
	events []event       // to come

	lease   lease.Lease
	abandon func()        // abandons the refreshes under way
	expires time.Duration // when the key does; never without expiry
	only    time.Duration // the ttl of all requests; 0 if they differ
	outage  time.Duration // from then on, nothing arrives
}

// never is when a key expires that has lost its expiry.
const never = math.MaxInt64 * time.Nanosecond

type event struct {
	at time.Duration
	do func()
}

func newModel(seed uint64) *model {
	m := &model{random: rand.New(rand.NewPCG(seed, 7)), abandon: func() {}}
	m.speed = 0.9902 + 0.0196*m.random.Float64()
	m.outage = m.upTo(20 * sec)
	ttl := m.ttl()
	if m.random.IntN(4) == 0 {
		// Somebody removes the expiry. The next request gives the key its own ttl, so the requests must not differ: nobody
		// knows how long the key would have lasted.
		m.only = ttl
		for range 3 {
			m.after(m.upTo(m.outage), func() { m.expires = never })
		}
	}
	m.lease = lease.Granted(m.clock(), ttl)
	m.expires = m.upTo(ttl / 4)
	m.now = m.expires // when the obtain is executed and answered
	m.expires += ttl
	return m
}

// clock returns what the client's clock shows now.
func (m *model) clock() time.Time { return at(time.Duration(float64(m.now) * m.speed)) }

// ttl returns one of a few, so that some are equal.
func (m *model) ttl() time.Duration {
	if m.only > 0 {
		return m.only
	}
	return time.Duration(1+m.random.IntN(5)) * sec
}

// upTo returns a random duration under d.
func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.random.Int64N(int64(d))) }

// after makes something happen in d.
func (m *model) after(d time.Duration, do func()) {
	m.events = append(m.events, event{m.now + d, do})
}

// run lets the lock live until its key expires, and returns what went wrong.
func (m *model) run() string {
	m.after(0, m.refresh)
	if m.random.IntN(2) == 0 { // else it is not kept
		m.after(0, m.renew)
	}
	for {
		slices.SortStableFunc(m.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		next := m.events[0]
		if m.expires <= next.at {
			m.now = m.expires
			if left := m.lease.Until().Sub(m.clock()); left > 0 {
				return "the lease lasts for another " + left.String() + " when its key expires"
			}
			return ""
		}
		if m.expires == never && next.at > m.outage+10*sec { // no request is left that could change that
			return ""
		}
		m.events = m.events[1:]
		m.now = next.at
		next.do()
	}
}

// request sends a request for ttl once, which may be one that never shortens what is left. It calls
// answered, unless that is lost on the way.
func (m *model) request(ttl time.Duration, shortens bool, answered func()) (executed *bool) {
	executed = new(bool)
	way := func() time.Duration {
		if m.random.IntN(5) == 0 {
			return m.upTo(5 * sec) // late
		}
		return m.upTo(200 * ms)
	}
	lost := m.random.IntN(4)
	if lost == 0 || m.now > m.outage {
		return executed // the request
	}
	m.after(way(), func() {
		*executed = true
		if m.expires == never {
			m.endless++
		}
		if expires := m.now + ttl.Truncate(ms); shortens || m.expires == never || expires > m.expires {
			m.expires = expires
		}
		if lost > 1 {
			m.after(way(), answered)
		}
	})
	return executed
}

// refresh begins a refresh, if the lease has room for it, and the next one some time later.
func (m *model) refresh() {
	pause := m.upTo(4 * sec)
	if m.random.IntN(3) == 0 {
		pause = m.upTo(100 * ms) // a retry
	}
	defer m.after(pause, m.refresh)
	ttl := m.ttl()
	if m.lease.Ahead(ttl) != nil {
		if m.clock().Before(m.lease.Until()) {
			return // it would have to wait
		}
		m.abandon() // nobody waits for the others past the validity, nor for a turn
	}
	prolongs := m.lease.Prolongs(ttl) && m.random.IntN(2) == 0
	r := m.lease.Begin(m.clock(), ttl, prolongs)
	if m.random.IntN(8) == 0 {
		if m.random.IntN(2) == 0 {
			m.lease.Finish(r, false) // it could not be sent
			return
		}
		r.Abandon() // its caller left before it turned out that it could not be sent
		m.after(m.upTo(2*sec), func() { m.lease.Finish(r, false) })
		return
	}
	ended, abandoned := false, false
	abandon := m.abandon
	m.abandon = func() {
		abandon()
		if !ended {
			r.Abandon()
			abandoned = true
		}
	}
	end := func() {
		m.lease.Finish(r, true)
		ended = true
	}
	var send func(tries int)
	doubtful := false // an earlier sending was not answered, and may yet be executed
	send = func(tries int) {
		sent := m.clock()
		over := false // this sending is answered or given up
		executed := m.request(ttl, !prolongs, func() {
			if over || ended {
				return
			}
			over = true
			if doubtful {
				m.lease.Doubt(r)
			}
			if !abandoned {
				m.lease.Confirm(r, sent)
				m.confirmed++
			}
			end()
		})
		m.after(m.upTo(2*sec), func() {
			if over || ended {
				return
			}
			over, doubtful = true, true
			if !*executed {
				m.late++
			}
			if tries > 1 {
				send(tries - 1)
				return
			}
			m.lease.Doubt(r)
			m.doubted++
			end()
		})
	}
	send(1 + m.random.IntN(3))
	if m.random.IntN(3) == 0 {
		m.after(m.upTo(sec), m.abandon)
	}
}

// renew makes the renewal that is due, if one is, and looks again when the lease says so.
func (m *model) renew() {
	renewal, next := m.lease.Renew(m.clock())
	pause := time.Duration(float64(next.Sub(m.clock())) / m.speed)
	m.after(max(pause, ms)+m.upTo(20*ms), m.renew)
	if renewal == nil {
		return
	}
	sent := m.clock()
	m.request(renewal.TTL, false, func() {
		if m.random.IntN(10) == 0 {
			m.lease.RenewalFailed(renewal, m.clock())
			return
		}
		m.lease.Renewed(renewal, sent)
		m.renewed++
	})
}
