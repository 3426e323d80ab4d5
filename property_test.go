package redislock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/internal/testing/spec"
)

// model is what Redis should hold after a history: for each key that exists its value, and its ttl in seconds.
type model map[string]modelKey

type modelKey struct {
	token, metadata string
	ttl             int // 0: none
}

func (m model) mine(key, token string) bool {
	held, exists := m[key]
	return exists && held.token == token
}

// lost returns those of keys that the token does not hold.
func (m model) lost(keys []string, token string) []string {
	var lost []string
	for _, key := range keys {
		if !m.mine(key, token) {
			lost = append(lost, key)
		}
	}
	return lost
}

func (m model) obtain(keys []string, token, metadata string, ttl int) bool {
	for _, key := range keys {
		if _, exists := m[key]; exists && !m.mine(key, token) {
			return false
		}
	}
	for _, key := range keys {
		left := ttl
		if held, exists := m[key]; exists && (held.ttl == 0 || held.ttl > ttl) {
			left = held.ttl
		}
		m[key] = modelKey{token, metadata, left}
	}
	return true
}

func (m model) age(seconds int) {
	for key, held := range m {
		if held.ttl == 0 {
			continue
		}
		if held.ttl -= seconds; held.ttl <= 0 {
			delete(m, key)
			continue
		}
		m[key] = held
	}
}

// matches compares an error with what the model says was lost of keys: nothing, everything, or these.
func matches(err error, keys, lost []string, whole error) string {
	var partial *redislock.LostError
	switch {
	case len(lost) == 0 && err == nil:
	case len(lost) == len(keys) && err == whole:
	case len(lost) > 0 && len(lost) < len(keys) && errors.As(err, &partial) && slices.Equal(partial.Keys, lost) && errors.Is(err, whole):
	default:
		return fmt.Sprintf("lost %q of %q: got error %v", lost, keys, err)
	}
	return ""
}

var _ = spec.DescribeOnRedis("Random histories", func(on *spec.Redis) {
	It("end as a simple model predicts, step by step", func(ctx SpecContext) {
		for range spec.Schedules(map[string]int{spec.InMemory: 20, spec.OnServer: 60}[on.Kind]) {
			Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
			seed := rand.Uint64()
			if problem := runHistory(ctx, on, rand.New(rand.NewPCG(seed, 1)), 60); problem != "" {
				Fail(fmt.Sprintf("seed %d: %s", seed, problem))
			}
		}
	})
})

// tokens and fragments are chosen to be mistaken for one another.
var (
	modelKeys  = []string{"a", "b", "c", "d", "e{x}", "f f"}
	modelToken = []string{"job-1", "job-10", "job", "1"}
	modelNotes = []string{"", "job-1", " ", "0", "x y", "\x00\xff\r\n", "job-10 job-1", strings.Repeat("long ", 500)}
)

// runHistory does steps random things to Redis and to a model, and returns the first difference, or "".
func runHistory(ctx context.Context, on *spec.Redis, random *rand.Rand, steps int) string {
	m := model{}
	locks := redislock.New(on.Client)
	held := []*redislock.Lock{}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	var past []string
	for range steps {
		keys := slices.Clone(modelKeys)
		random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		keys = keys[:1+random.IntN(4)]
		token, note, ttl := pick(modelToken), pick(modelNotes), 1000+random.IntN(5)*1000
		var lock *redislock.Lock
		if len(held) > 0 {
			lock = held[random.IntN(len(held))]
		}
		step, problem := "", ""
		switch what := random.IntN(10); {
		case what < 4 || lock == nil:
			step = fmt.Sprintf("obtain %q %q %q %d", keys, token, note, ttl)
			got, err := locks.ObtainMulti(ctx, keys, time.Duration(ttl)*time.Second, &redislock.Options{Token: token, Metadata: note})
			if m.obtain(keys, token, note, ttl) != (err == nil) || err != nil && err != redislock.ErrNotObtained {
				problem = fmt.Sprintf("got error %v", err)
			}
			if err == nil {
				held = append(held, got)
			}
		case what == 4:
			step = fmt.Sprintf("refresh %q %q %q %d", lock.Keys(), lock.Token(), note, ttl)
			lost := m.lost(lock.Keys(), lock.Token())
			err := lock.Refresh(ctx, time.Duration(ttl)*time.Second, &redislock.Options{Metadata: note})
			problem = matches(err, lock.Keys(), lost, redislock.ErrNotObtained)
			for _, key := range lock.Keys() {
				if len(lost) == 0 {
					m[key] = modelKey{lock.Token(), cmp.Or(note, m[key].metadata), ttl}
				}
			}
		case what < 7:
			step = fmt.Sprintf("release %q %q", lock.Keys(), lock.Token())
			problem = matches(lock.Release(ctx), lock.Keys(), m.lost(lock.Keys(), lock.Token()), redislock.ErrLockNotHeld)
			for _, key := range lock.Keys() {
				if m.mine(key, lock.Token()) {
					delete(m, key)
				}
			}
			held = slices.DeleteFunc(held, func(other *redislock.Lock) bool { return other == lock })
		case what == 7:
			step = fmt.Sprintf("attach %q %q", keys, token)
			_, err := locks.Attach(ctx, keys, token)
			problem = matches(err, keys, m.lost(keys, token), redislock.ErrLockNotHeld)
		case what == 8:
			step = fmt.Sprintf("del %q", keys[0])
			on.Client.Del(ctx, keys[0])
			delete(m, keys[0])
		case what == 9:
			seconds := random.IntN(3) * 1000
			step = fmt.Sprintf("age %d", seconds)
			on.Age(ctx, time.Duration(seconds)*time.Second)
			m.age(seconds)
		}
		past = append(past, step)
		if problem == "" {
			problem = compare(ctx, locks, m)
		}
		if problem != "" {
			return problem + "\nafter " + strings.Join(past, "\n      ")
		}
	}
	return ""
}

// compare returns how what Inspect sees differs from the model, or "".
func compare(ctx context.Context, locks *redislock.Client, m model) string {
	statuses, err := locks.Inspect(ctx, modelKeys...)
	if err != nil {
		return err.Error()
	}
	for _, status := range statuses {
		want := m[status.Key]
		// Milliseconds pass between steps; the model's ttls are thousands of seconds apart.
		if drift := time.Duration(want.ttl)*time.Second - status.TTL; status.Token != want.token ||
			status.Metadata != want.metadata || drift < 0 || drift > 500*time.Second {
			return fmt.Sprintf("%q holds %+v, want %+v", status.Key, status, want)
		}
	}
	return ""
}

var _ = spec.DescribeOnRedis("Many holders", func(on *spec.Redis) {
	It("never hold one key at a time, and free everything in the end", func(ctx SpecContext) {
		locks := redislock.New(on.Client)
		var mu sync.Mutex // protects events
		var events []history.Event
		note := func(e history.Event) { // the order of the events is their time
			mu.Lock()
			defer mu.Unlock()
			e.At = int64(len(events) + 1)
			e.Start = e.At
			events = append(events, e)
		}
		var wait sync.WaitGroup
		for worker := range 16 {
			wait.Go(func() {
				random := rand.New(rand.NewPCG(rand.Uint64(), 1))
				for turn := range 40 {
					keys := slices.Clone(modelKeys)
					random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
					keys = keys[:1+random.IntN(3)]
					lock, err := locks.ObtainMulti(ctx, keys, 30*time.Second, &redislock.Options{
						RetryStrategy: redislock.LimitRetry(redislock.Jitter(redislock.LinearBackoff(time.Millisecond), 0.5), 5),
					})
					if err != nil {
						continue
					}
					op := fmt.Sprintf("w%d/%d", worker, turn)
					note(history.Event{Kind: history.Grant, Op: op, Keys: keys, Token: lock.Token(), Until: math.MaxInt64})
					time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond) // the guarded work
					note(history.Event{Kind: history.Claim, Op: op})
					note(history.Event{Kind: history.Done, Name: "Release", Op: op, Lost: lock.Release(ctx) != nil})
				}
			})
		}
		wait.Wait()
		var left []history.Held
		for _, key := range on.Keys(ctx) {
			left = append(left, history.Held{Key: key})
		}
		note(history.Event{Kind: history.Final, Held: left})
		result := check.Run(events)
		Expect(result.Violations).To(BeEmpty())
		Expect(result.Checked[check.Exclusion]).To(BeNumerically(">", 100))
	})
})
