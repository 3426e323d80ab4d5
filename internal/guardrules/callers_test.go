package guardrules_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
)

var background = context.Background()

// call obtains a lock, uses it and gives it up in some way.
func (m *model) call(caller int) {
	if m.lapses && caller == 0 {
		m.revive()
		return
	}
	client := caller % clients
	keys := m.someKeys()
	ttl := m.someTTL(client)
	opt := &redislock.Options{Queue: m.intN(2) == 0, Explain: true}
	if m.intN(2) == 0 {
		opt.FenceKey = fenceKey
	}
	if !opt.Queue && m.intN(4) > 0 {
		opt.RetryStrategy = redislock.LinearBackoff(40 * time.Millisecond)
	}
	if m.custom && caller%2 == 0 {
		opt.Token = fmt.Sprint("token-", caller)
	}
	m.share(opt, keys)
	c := m.obtain(client, keys, ttl, opt, time.Millisecond+m.upTo(3*time.Second))
	if c == nil {
		time.Sleep(m.upTo(50 * time.Millisecond))
		return
	}
	plain := m.custom // without any Refresh, which may be executed late and shorten the ttl of the next holder of the token
	kept := m.intN(3) > 0
	stop := context.CancelFunc(func() {})
	if kept {
		_, stop = c.lock.KeepAlive(background)
	}
	defer func() { stop() }()
	time.Sleep(m.someHold(kept))
	if !plain && m.intN(4) == 0 {
		limited, cancel := context.WithTimeout(background, 400*time.Millisecond)
		_ = c.lock.Refresh(limited, m.someTTL(client), nil)
		cancel()
		time.Sleep(m.upTo(200 * time.Millisecond))
	}
	stop()
	switch {
	case m.custom && m.intN(2) == 0: // the process crashes, and the next one has the keys and the token
		m.crashed(c)
		if opt.Token == "" && m.intN(4) > 0 {
			m.attach((client+1)%clients, keys, c.lock.Token(), opt)
		}
	case m.custom || m.intN(6) > 0:
		m.release(c)
	}
}

// share lets others hold some of the keys as well. A token that is used again shares them always in the same way, because
// nobody can lock a key alone that he shares.
func (m *model) share(opt *redislock.Options, keys []string) {
	for _, key := range keys {
		mode := m.intN(4)
		if m.custom {
			mode = m.mode
		}
		switch {
		case !m.shares || mode < 2:
		case mode == 2 || m.quorum:
			opt.Shared = append(opt.Shared, key)
		default:
			if opt.Permits == nil {
				opt.Permits = map[string]int{}
			}
			opt.Permits[key] = 2
		}
	}
}

func (m *model) someKeys() []string {
	if m.narrow {
		return []string{"a"}
	}
	keys := []string{"a", "b", "c"}
	first := m.intN(3)
	return slices.Concat(keys[first:], keys[:first])[:1+m.intN(2)]
}

func (m *model) someTTL(client int) time.Duration {
	longest := m.maxTTL
	if client == 0 && m.without.overlong {
		longest *= 2
	}
	switch {
	case m.long || m.intN(3) == 0:
		return longest
	case m.short:
		return 100*time.Millisecond + m.upTo(250*time.Millisecond)
	}
	return 100*time.Millisecond + m.upTo(longest-100*time.Millisecond)
}

// someHold returns for how long to hold a lock.
func (m *model) someHold(kept bool) time.Duration {
	most := []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, m.maxTTL, 3 * m.maxTTL}[m.intN(4)]
	if !kept {
		most = min(most, m.maxTTL)
	}
	return m.upTo(most)
}

// obtain returns nil if the lock cannot be acquired within the patience; 0 is for ever.
func (m *model) obtain(
	client int, keys []string, ttl time.Duration, opt *redislock.Options, patience time.Duration,
) *claim {
	ctx, cancel := context.WithCancel(background)
	if patience > 0 {
		ctx, cancel = context.WithTimeout(ctx, patience)
	}
	defer cancel()
	began := time.Now()
	lock, err := m.clients[client].ObtainMulti(ctx, keys, ttl, opt)
	if err != nil {
		m.explained(err)
		return nil
	}
	return m.granted("ObtainMulti", began, lock, opt, m.need())
}

// doubles sets whether requests arrive again, late.
func (m *model) doubles(on bool) {
	m.fates.Lock()
	defer m.fates.Unlock()
	m.doubled = on
}

// echo passes a lock on, while releases arrive a second time, late. In between, the server restarts with what it held before
// the lock was passed on, and somebody comes who waits in line, or who has the token of the first holder.
func (m *model) echo() {
	for began := time.Now(); time.Since(began) < 8*time.Second; {
		opt := &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond), Explain: true}
		first := m.obtain(0, []string{"a"}, m.maxTTL, opt, 3*time.Second)
		if first == nil {
			continue
		}
		time.Sleep(10*time.Millisecond + m.upTo(50*time.Millisecond))
		then := time.Now()
		m.doubles(true)
		m.release(first)
		m.doubles(false)
		second := m.obtain(1, []string{"a"}, m.maxTTL, opt, 3*time.Second)
		time.Sleep(m.upTo(100 * time.Millisecond))
		master, _ := m.groups[0].nodes()
		master.Refuse()
		master.restore(master.ago(time.Since(then)))
		master.start()
		m.forgotten()
		time.Sleep(m.upTo(20 * time.Millisecond))
		master.Revive()
		if m.intN(2) == 0 {
			m.attach(2, []string{"a"}, first.lock.Token(), opt)
		} else if third := m.obtain(2, []string{"a"}, m.maxTTL, &redislock.Options{Queue: true}, 3*time.Second); third != nil {
			m.release(third)
		}
		if second != nil {
			m.release(second)
		}
	}
}

// attach resumes a lock whose holder has crashed, and which was obtained with these options.
func (m *model) attach(client int, keys []string, token string, opt *redislock.Options) {
	limited, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	began := time.Now()
	lock, err := m.clients[client].Attach(limited, keys, token)
	if err != nil {
		return
	}
	m.count(attached)
	c := m.granted("Attach", began, lock, &redislock.Options{Shared: opt.Shared, Permits: opt.Permits}, m.need())
	if lock.Refresh(limited, m.someTTL(client), nil) == nil && m.intN(2) == 0 {
		_, stop := lock.KeepAlive(background)
		time.Sleep(m.someHold(true))
		stop()
	}
	m.release(c)
}

func (m *model) release(c *claim) {
	limited, cancel := context.WithTimeout(background, 50*time.Millisecond+m.upTo(time.Second))
	defer cancel()
	_ = c.lock.Release(limited)
}

// revive obtains a lock, lets it lapse, and refreshes it again and again.
func (m *model) revive() {
	opt := &redislock.Options{Queue: true, Explain: true}
	m.share(opt, []string{"a"})
	c := m.obtain(0, []string{"a"}, 100*time.Millisecond, opt, 3*time.Second)
	if c == nil {
		return
	}
	time.Sleep(time.Until(c.until))
	for time.Since(c.since) < 2*m.maxTTL {
		time.Sleep(m.upTo(100 * time.Millisecond))
		limited, cancel := context.WithTimeout(background, 200*time.Millisecond)
		_ = c.lock.Refresh(limited, m.maxTTL, nil)
		cancel()
	}
	m.release(c)
}

// last obtains a lock when everything is calm. It must be granted.
func (m *model) last(caller int) {
	keys := m.someKeys()
	limited, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	began := time.Now()
	opt := &redislock.Options{Queue: true, FenceKey: fenceKey}
	m.share(opt, keys)
	lock, err := m.clients[caller%clients].ObtainMulti(limited, keys, m.maxTTL, opt)
	if err != nil {
		m.note(history.Event{Kind: history.Last, Name: "ObtainMulti", Keys: keys, Outcome: "refused"})
		m.problem("the last obtain: %v", err)
		return
	}
	c := m.granted("ObtainMulti", began, lock, opt, m.need())
	time.Sleep(m.upTo(50 * time.Millisecond))
	m.release(c)
}

// tidy makes callers release locks that are being refreshed, while the server forgets them. The locks last for long, but
// nothing may stay behind for long.
func (m *model) tidy() {
	for range 4 {
		m.within(2*time.Minute, "a call does not return", func(i int) {
			opt := &redislock.Options{Queue: true, Metadata: "m"}
			c := m.obtain(i%clients, []string{fmt.Sprint("key ", i)}, m.maxTTL, opt, 0)
			if c == nil {
				return
			}
			time.Sleep(time.Second)
			if i == 0 {
				master, _ := m.groups[0].nodes()
				master.Memory.FlushAll()
				m.forgotten()
			}
			time.Sleep(time.Millisecond)
			var refreshes sync.WaitGroup
			for range 1 + m.intN(3) {
				refreshes.Go(func() {
					limited, cancel := context.WithTimeout(background, 1+m.upTo(300*time.Millisecond))
					defer cancel()
					_ = c.lock.Refresh(limited, m.maxTTL, nil)
				})
			}
			time.Sleep(m.upTo(300 * time.Millisecond))
			if err := c.lock.Release(background); err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
				m.problem("a release: %v", err)
			}
			refreshes.Wait()
		})
		time.Sleep(5 * time.Second)
		m.final()
	}
}
