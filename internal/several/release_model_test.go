package several_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Random Releases of locks of two keys are compared with what the servers have. REDISLOCK_TEST_RUNS is how many there are.
// REDISLOCK_TEST_SEED repeats one, as far as the scheduler of Go and what the Client has learnt before do.
var _ = describeSchedules("a Release at random", func(on *schedule) {
	It("says what the servers had, and leaves nothing", func(ctx SpecContext) {
		runs, first := spec.Runs(300), rand.Uint64N(1<<48)
		if seed, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
			runs, first = 1, seed
		}
		hasty := on.connect(ctx, func(opt *redis.Options) { opt.ReadTimeout = 300 * time.Millisecond })
		waits, said := on.connect(ctx, patient), map[string]int{}
		for seed := first; seed < first+uint64(runs); seed++ {
			m := &releaseModel{schedule: on, random: rand.New(rand.NewPCG(seed, 8)), locks: waits}
			if m.oneIn(2) {
				m.locks, m.hasty = hasty, true
			}
			m.run(ctx)
			for _, result := range m.results {
				said[kindOf(result)]++
			}
			if len(m.wrong) > 0 {
				Fail(fmt.Sprintf("seed %d: %s\n%s", seed, strings.Join(m.wrong, "; "), strings.Join(m.log, "\n")))
			}
		}
		if runs >= 300 {
			for _, kind := range []string{"nil", "some keys", "the lock", "error"} {
				Expect(said[kind]).To(BeNumerically(">", 0), "%s: %v", kind, said)
			}
		}
	})
})

// kindOf returns what a Release says: nil, that some keys or the lock were lost, or another error.
func kindOf(err error) string {
	switch lost := (*redislock.LostError)(nil); {
	case err == nil:
		return "nil"
	case errors.As(err, &lost):
		return "some keys"
	case errors.Is(err, redislock.ErrLockNotHeld):
		return "the lock"
	}
	return "error"
}

// releaseModel is one random life of a lock of the keys a and b.
type releaseModel struct {
	*schedule

	random *rand.Rand
	locks  *redislock.Client
	hasty  bool // its requests end after 300 ms
	lock   *redislock.Lock

	late     bool    // the obtain at server 2 may be executed late, and then takes the keys after an answered release
	unsure   [3]bool // a release at that server may be executed although it is not answered
	results  []error
	returned bool // a Release has returned what became of the keys

	mu    sync.Mutex // protects what follows, and returned
	log   []string
	wrong []string
}

func (m *releaseModel) oneIn(n int) bool { return m.random.IntN(n) == 0 }

func (m *releaseModel) ms(n int) time.Duration {
	return time.Duration(m.random.IntN(n)) * time.Millisecond
}

func (m *releaseModel) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, fmt.Sprintf("%v ", time.Since(m.start))+fmt.Sprintf(format, args...))
}

func (m *releaseModel) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// breaks returns what happens to some request, its name, and whether the request may be executed without an answer.
func (m *releaseModel) breaks() (action faultproxy.Action, name string, unsure bool) {
	d := m.ms(600)
	switch m.random.IntN(8) {
	case 0:
		return requestLost, "request lost", true
	case 1, 2:
		return replyLost, "reply lost", true
	case 3:
		return faultproxy.DelayRequest(d), fmt.Sprint("request late by ", d), m.hasty
	case 4:
		return faultproxy.DelayReply(d), fmt.Sprint("reply late by ", d), m.hasty
	case 5:
		refused := faultproxy.RefuseReply("LOADING Redis is loading the dataset in memory")
		return refused.And(faultproxy.DelayReply(d / 2)), fmt.Sprint("refused after ", d/2), false
	case 6:
		return stuck(d), fmt.Sprint("stuck for ", d), true
	}
	return passes, "passes", false
}

// disturb breaks requests at all servers.
func (m *releaseModel) disturb() {
	for i := range 3 {
		var rules []faultproxy.Rule
		for _, script := range []string{"refresh", "obtain", "release"} {
			for range m.random.IntN(3) {
				if action, name, unsure := m.breaks(); m.oneIn(2) {
					m.note("server %d: %s: %s", i, script, name)
					m.unsure[i] = m.unsure[i] || unsure && script == "release"
					rules = append(rules, ours(script, 1, action))
				}
			}
			if i == 1 && m.oneIn(8) {
				m.note("server %d: each %s: request lost", i, script)
				m.unsure[i] = m.unsure[i] || script == "release"
				rules = append(rules, ours(script, 0, requestLost))
			}
		}
		m.Break(i, rules...)
	}
}

// forget deletes a key at a server.
func (m *releaseModel) forget(key string, i int) {
	m.Servers[i].Memory.Memory.Del(key)
	m.note("deleted %s at %d", key, i)
}

// has reports whether a server has a key of the lock.
func (m *releaseModel) has(key string, i int) bool {
	value, _ := m.Servers[i].Memory.Memory.Get(key)
	return value == m.lock.Token()
}

// whole returns how many servers have both keys.
func (m *releaseModel) whole() (n int) {
	for i := range 3 {
		if m.has("a", i) && m.has("b", i) {
			n++
		}
	}
	return n
}

// live obtains the lock, and uses it. It returns false if the lock could not be obtained.
func (m *releaseModel) live(ctx context.Context) bool {
	keys, ttls := []string{"a", "b"}, []time.Duration{time.Second, time.Minute}
	if m.late = m.oneIn(2); m.late {
		var rules []faultproxy.Rule
		for range 1 + m.random.IntN(2) {
			action, name, _ := m.breaks()
			if m.oneIn(2) {
				d, e := m.ms(500), m.ms(500)
				action, name = faultproxy.DelayRequest(d).And(faultproxy.DelayReply(e)), fmt.Sprint("late by ", d, " and ", e)
			}
			m.note("server 2: obtain: %s", name)
			rules = append(rules, ours("obtain", 1, action))
		}
		m.Break(2, rules...)
	}
	lock, err := m.locks.ObtainMulti(ctx, keys, ttls[m.random.IntN(2)], nil)
	if err != nil {
		return false
	}
	m.lock = lock
	time.Sleep(time.Duration(m.random.IntN(2)) * 20 * time.Millisecond)
	if !m.late && m.oneIn(4) {
		if attached, err := m.Locks.Attach(ctx, keys, lock.Token()); err == nil {
			m.note("attached")
			m.lock = attached
		}
	}
	m.disturb()
	for range m.random.IntN(4) * m.random.IntN(2) {
		if m.oneIn(3) {
			m.forget(keys[m.random.IntN(2)], m.random.IntN(3))
		} else {
			ttl := ttls[m.random.IntN(2)]
			err := m.lock.Refresh(spec.Within(ctx, time.Second), ttl, nil)
			if m.note("refresh for %v: %v", ttl, err); err == nil && m.whole() < 2 {
				m.fail("a Refresh has succeeded at %d servers", m.whole())
			}
		}
		time.Sleep(m.ms(900))
		if m.oneIn(4) {
			left, err := m.lock.TTL(spec.Within(ctx, time.Second))
			if m.note("ttl: %v, %v", left, err); err == nil && left > 0 && m.whole() < 2 {
				m.fail("a ttl at %d servers", m.whole())
			}
		}
	}
	if m.oneIn(6) {
		_, stop := m.lock.KeepAlive(ctx)
		time.Sleep(m.ms(1500))
		stop()
	}
	if m.oneIn(2) {
		i := m.random.IntN(3)
		for _, key := range keys[:1+m.random.IntN(2)] {
			m.forget(key, i)
		}
	}
	return true
}

// release releases the lock up to three times, side by side.
func (m *releaseModel) release(ctx context.Context) {
	var all sync.WaitGroup
	m.results = make([]error, 1+m.random.IntN(3))
	for k := range m.results {
		after, cut := m.ms(400)*time.Duration(k), m.ms(600)+time.Millisecond
		if m.random.IntN(3) > 0 || k == len(m.results)-1 {
			cut = 30 * time.Second
		}
		all.Go(func() {
			time.Sleep(after)
			within, cancel := context.WithTimeout(ctx, cut)
			defer cancel()
			m.mu.Lock()
			returned := m.returned
			m.mu.Unlock()
			began := time.Now()
			err := m.lock.Release(within)
			if m.note("release %d: %v", k, err); time.Since(began) > cut+20*time.Millisecond {
				m.fail("a Release has taken %v", time.Since(began))
			}
			m.mu.Lock()
			m.returned = m.returned || kindOf(err) != "error"
			m.mu.Unlock()
			if m.results[k] = err; returned { // it has said no more than that
				m.results[k] = context.Canceled
			}
		})
	}
	all.Wait()
}

// run checks one life of a lock. What its Releases say is checked if it was valid for a while: otherwise keys may expire
// meanwhile.
func (m *releaseModel) run(ctx context.Context) {
	m.start = time.Now()
	if m.live(ctx) {
		whole, at := m.whole(), map[string]int{}
		freed := 0 // servers that may have freed both keys
		for i := range 3 {
			a, b := m.has("a", i), m.has("b", i)
			if m.unsure[i] || a && b || i == 2 && m.late {
				freed++
			}
			for key, has := range map[string]bool{"a": a, "b": b} {
				if has {
					at[key]++
				}
			}
		}
		left := time.Until(m.lock.Until())
		m.note("%d servers have all keys, for %v: %v", whole, left, at)
		if m.release(ctx); left > 5*time.Second {
			m.judge(whole, freed, at)
		}
	}
	time.Sleep(3 * time.Second)
	m.Heal()
	for range 40 {
		if len(m.LeftKeys(ctx)) == 0 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if left := m.LeftKeys(ctx); len(left) > 0 {
		m.fail("left: %v", left)
	}
	for _, s := range m.Servers {
		s.Memory.Memory.FlushAll()
	}
}

// judge compares what the Releases have said with what the servers had.
func (m *releaseModel) judge(whole, freed int, at map[string]int) {
	said := map[string]bool{}
	for _, err := range m.results {
		said[kindOf(err)] = true
		lost := (*redislock.LostError)(nil)
		switch kindOf(err) {
		case "nil":
			if freed < 2 {
				m.fail("nil, but %d servers may have freed all keys", freed)
			}
		case "some keys":
			errors.As(err, &lost)
			for _, key := range lost.Keys {
				if at[key] >= 2 && whole >= 2 {
					m.fail("%s was not lost", key)
				}
			}
		case "the lock":
			if whole >= 2 {
				m.fail("the lock was not lost")
			}
		}
	}
	if said["nil"] && (said["some keys"] || said["the lock"]) {
		m.fail("the Releases contradict each other")
	}
}
