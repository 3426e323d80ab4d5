package redislock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("A lock", func(on *spec.Redis) {
	var locks *redislock.Client
	var lock *redislock.Lock

	BeforeEach(func(ctx SpecContext) {
		locks = redislock.New(on.Client)
		lock = spec.Obtain(ctx, locks, time.Minute, nil, "a", "b", "c")
	})

	It("is one line for a person, which does not give away its token", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "a-token-of-mine"}, "1", "2", "3", "4", "5", "6", "7")
		text := "lock on 1 2 3 4 5 and 2 more, until " + lock.Until().Format(time.RFC3339Nano) + ", token a-toke…"
		Expect(lock.String()).To(Equal(text))
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
			Expect(fmt.Sprintf(verb, lock)).To(Equal(text), verb)
		}
		Expect(fmt.Sprintf("%q", lock)).To(Equal(strconv.Quote(text)))
		var logged strings.Builder
		slog.New(slog.NewTextHandler(&logged, nil)).Info("m", "lock", lock)
		Expect(logged.String()).To(And(
			ContainSubstring(`lock.keys="1 2 3 4 5 and 2 more"`), ContainSubstring("lock.until="), ContainSubstring("lock.token=a-toke…"),
		))
		Expect(logged.String()).NotTo(ContainSubstring("a-token-of-mine"))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(lock.String()).To(ContainSubstring(", not held since "))
		for _, none := range []*redislock.Lock{nil, {}} {
			Expect(none.String()).To(Equal("no lock"))
			Expect(none.LogValue().String()).To(Equal("no lock"))
		}
	})

	Describe("TTL", func() {
		It("is the least over the keys", func(ctx SpecContext) {
			on.Client.PExpire(ctx, "b", 20*time.Second)
			Expect(lock.TTL(ctx)).To(BeNumerically("~", 20*time.Second, time.Second))
		})

		It("ignores keys without expiry", func(ctx SpecContext) {
			on.Client.Persist(ctx, "a")
			on.Client.PExpire(ctx, "b", 20*time.Second)
			Expect(lock.TTL(ctx)).To(BeNumerically("~", 20*time.Second, time.Second))
		})

		It("is the largest Duration if no key has an expiry", func(ctx SpecContext) {
			on.Client.Persist(ctx, "a")
			on.Client.Persist(ctx, "b")
			on.Client.Persist(ctx, "c")
			Expect(lock.TTL(ctx)).To(Equal(time.Duration(math.MaxInt64)))
		})

		DescribeTable("is 0 if a key is lost", func(ctx SpecContext, lose func(ctx context.Context, on *spec.Redis, key string)) {
			lose(ctx, on, "c")
			Expect(lock.TTL(ctx)).To(BeZero())
		}, waysToLose)

		It("takes one round trip", func(ctx SpecContext) {
			Expect(lock.TTL(ctx)).NotTo(BeZero())
			sent := spec.CountCalls(on.Client)
			Expect(lock.TTL(ctx)).NotTo(BeZero())
			Expect(sent.Count()).To(Equal(1))
		})
	})

	Describe("Until", func() {
		It("is counted from before the request, less 1 % and 1 ms", func(ctx SpecContext) {
			before := time.Now()
			lock := spec.Obtain(ctx, locks, 10*time.Second, nil, "d")
			after := time.Now()
			Expect(lock.Until()).To(BeTemporally(">=", before.Add(9899*time.Millisecond)))
			Expect(lock.Until()).To(BeTemporally("<=", after.Add(9899*time.Millisecond)))
		})

		It("has passed already for the least ttl, or lies within it", func(ctx SpecContext) {
			lock, err := locks.Obtain(ctx, "d", 2*time.Millisecond, nil)
			if err == nil {
				Expect(lock.Until()).To(BeTemporally("<", time.Now().Add(time.Millisecond))) // it was sent before now
			} else { // the answer took more than the 0.98 ms that are certain
				Expect(err).To(MatchError(redislock.ErrNotObtained))
				Expect(err).To(MatchError(redislock.ErrLapsed))
			}
		})

		It("has passed once the lock is released", func(ctx SpecContext) {
			Expect(lock.Until()).To(BeTemporally(">", time.Now()))
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		})

		It("has passed once a Refresh found the lock lost", func(ctx SpecContext) {
			on.Client.Del(ctx, "a")
			Expect(lock.Refresh(ctx, time.Minute, nil)).NotTo(Succeed())
			Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
		})
	})

	Describe("Refresh", func() {
		It("sets the ttl of every key, up or down, and Until with it", func(ctx SpecContext) {
			for _, ttl := range []time.Duration{time.Hour, 10 * time.Second} {
				before := time.Now()
				Expect(lock.Refresh(ctx, ttl, nil)).To(Succeed())
				for _, key := range lock.Keys() {
					Expect(on.Client.PTTL(ctx, key).Val()).To(BeNumerically("~", ttl, time.Second))
				}
				Expect(lock.Until()).To(BeTemporally("~", before.Add(ttl-ttl/100), time.Second))
			}
		})

		It("replaces the metadata, if it is given any", func(ctx SpecContext) {
			Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Metadata: "step 2"})).To(Succeed())
			Expect(lock.Metadata()).To(Equal("step 2"))
			Expect(lock.Refresh(ctx, time.Minute, &redislock.Options{Token: "ignored"})).To(Succeed())
			for _, key := range lock.Keys() {
				Expect(on.Client.Get(ctx, key).Val()).To(Equal(lock.Token() + " step 2"))
			}
			Expect(lock.Metadata()).To(Equal("step 2"))
			Expect(lock.Release(ctx)).To(Succeed())
		})

		It("returns plain ErrNotObtained if the whole lock is lost, and stops trying", func(ctx SpecContext) {
			on.Age(ctx, time.Minute)
			sent := spec.CountCalls(on.Client)
			err := lock.Refresh(ctx, time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
			Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
			Expect(on.Keys(ctx)).To(BeEmpty(), "a refresh creates no key")
			Expect(sent.Count()).To(Equal(1))
		})

		DescribeTable("extends nothing if a key is lost, and says which", func(ctx SpecContext, lose func(ctx context.Context, on *spec.Redis, key string)) {
			lose(ctx, on, "b")
			err := lock.Refresh(ctx, time.Hour, &redislock.Options{Metadata: "new"})
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(redislock.ErrLockNotHeld))
			Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
			for _, key := range []string{"a", "c"} {
				Expect(on.Client.Get(ctx, key).Val()).To(Equal(lock.Token()))
				Expect(on.Client.PTTL(ctx, key).Val()).To(BeNumerically("<=", time.Minute))
			}
		}, waysToLose)

		It("refuses a ttl under 2 ms and a nil ctx, and sends nothing", func(ctx SpecContext) {
			sent := spec.CountCalls(on.Client)
			Expect(lock.Refresh(ctx, time.Millisecond, nil)).To(MatchError(redislock.ErrInvalid))
			Expect(lock.Refresh(ctx, -time.Second, nil)).To(MatchError(redislock.ErrInvalid))
			Expect(lock.Refresh(nil, time.Minute, nil)).To(MatchError(redislock.ErrInvalid)) //nolint:staticcheck // on purpose
			Expect(sent.Count()).To(BeZero())
		})

		It("sends nothing with a ctx that has ended", func(ctx SpecContext) {
			until := lock.Until()
			ended, cancel := context.WithCancel(ctx)
			cancel()
			sent := spec.CountCalls(on.Client)
			err := lock.Refresh(ended, time.Second, nil)
			Expect(err).To(MatchError(context.Canceled))
			Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			Expect(sent.Count()).To(BeZero())
			Expect(lock.Until()).To(Equal(until))
		})

		It("refuses after Release", func(ctx SpecContext) {
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(lock.Refresh(ctx, time.Minute, nil)).To(Equal(redislock.ErrNotObtained))
			Expect(on.Keys(ctx)).To(BeEmpty())
		})

		It("refreshes past Until while the keys are there", func(ctx SpecContext) {
			late := spec.Obtain(ctx, locks, 100*time.Millisecond, nil, "late")
			on.Client.Persist(ctx, "late")
			Eventually(func() bool { return time.Now().After(late.Until()) }).Should(BeTrue())
			Expect(late.Refresh(ctx, time.Minute, nil)).To(Succeed())
			Expect(late.Until()).To(BeTemporally(">", time.Now()))
		})
	})

	Describe("Release", func() {
		It("deletes every key, and only once", func(ctx SpecContext) {
			Expect(lock.Release(ctx)).To(Succeed())
			Expect(on.Keys(ctx)).To(BeEmpty())
			err := lock.Release(ctx)
			Expect(err).To(BeIdenticalTo(redislock.ErrLockNotHeld))
		})

		It("returns plain ErrLockNotHeld if every key is lost, and leaves the next holder alone", func(ctx SpecContext) {
			on.Age(ctx, time.Minute)
			next := spec.Obtain(ctx, locks, time.Minute, nil, "a", "b", "c")
			err := lock.Release(ctx)
			Expect(err).To(BeIdenticalTo(redislock.ErrLockNotHeld))
			Expect(next.TTL(ctx)).To(BeNumerically(">", 0))
		})

		DescribeTable("frees what is still its own, and says what was not", func(ctx SpecContext, lose func(ctx context.Context, on *spec.Redis, key string)) {
			lose(ctx, on, "b")
			before := on.Client.Type(ctx, "b").Val()
			err := lock.Release(ctx)
			Expect(err).To(MatchError(redislock.ErrLockNotHeld))
			Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
			Expect(on.Client.Exists(ctx, "a", "c").Val()).To(BeZero())
			Expect(on.Client.Type(ctx, "b").Val()).To(Equal(before))
		}, waysToLose)

		It("says which keys are gone and which are another's", func(ctx SpecContext) {
			on.Client.Del(ctx, "a")
			on.Client.Set(ctx, "c", "other", 0)
			Expect(lock.Release(ctx)).To(MatchError(`redislock: lost 2 of 3 keys (1 gone, 1 another's): "a", "c"`))
		})

		It("goes out although ctx has ended", func(ctx SpecContext) {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			Expect(lock.Release(ended)).To(Succeed())
			Expect(on.Keys(ctx)).To(BeEmpty())
		})

		It("reports what happened to a lock whose ctx and ttl are both over", func(ctx SpecContext) {
			short := spec.Obtain(ctx, locks, spec.Bound(on.Kind, 30*time.Millisecond, 300*time.Millisecond), nil, "short")
			Eventually(func() bool { return time.Now().After(short.Until()) }).Should(BeTrue())
			on.Client.Del(ctx, "short")
			ended, cancel := context.WithCancel(ctx)
			cancel()
			err := short.Release(ended)
			if on.Kind == spec.OnServer && errors.Is(err, context.Canceled) { // on a busy machine, the answer may take longer than the 20 ms
				err = short.Release(ctx)
			}
			Expect(err).To(Equal(redislock.ErrLockNotHeld))
		})

		It("refuses a nil ctx", func(ctx SpecContext) {
			Expect(lock.Release(nil)).To(MatchError(redislock.ErrInvalid)) //nolint:staticcheck // on purpose
			Expect(lock.TTL(ctx)).NotTo(BeZero())
		})
	})

	It("refuses a nil ctx in TTL", func() {
		_, err := lock.TTL(nil) //nolint:staticcheck // on purpose
		Expect(err).To(MatchError(redislock.ErrInvalid))
	})

	DescribeTable("is not held if it is nil or zero, and says so without a panic", func(ctx SpecContext, none *redislock.Lock) {
		Expect(none.Release(ctx)).To(Equal(redislock.ErrLockNotHeld))
		Expect(none.Refresh(ctx, time.Minute, nil)).To(Equal(redislock.ErrNotObtained))
		_, err := none.TTL(ctx)
		Expect(err).To(Equal(redislock.ErrLockNotHeld))
		Expect(none.Until()).To(BeZero())
		Expect(none.FenceToken()).To(BeZero())
		Expect(none.Key()).To(BeEmpty())
		Expect(none.Keys()).To(BeEmpty())
		Expect(none.Token()).To(BeEmpty())
		Expect(none.Metadata()).To(BeEmpty())
	},
		Entry("nil", nil),
		Entry("zero", &redislock.Lock{}),
	)
})

// waysToLose are entries for tables whose body loses one key of a lock.
var waysToLose = []TableEntry{
	Entry("gone", func(ctx context.Context, on *spec.Redis, key string) { on.Client.Del(ctx, key) }),
	Entry("another's", func(ctx context.Context, on *spec.Redis, key string) { on.Client.Set(ctx, key, "other data", 0) }),
	Entry("of another type", func(ctx context.Context, on *spec.Redis, key string) {
		on.Client.Del(ctx, key)
		on.Client.SAdd(ctx, key, "x")
	}),
	Entry("another's whose token begins alike", func(ctx context.Context, on *spec.Redis, key string) {
		on.Client.Append(ctx, key, "0")
	}),
}

var _ = Describe("The memory of a lock", func() {
	It("is 480 bytes, which is a size class: one more byte would cost 32", func() {
		if strconv.IntSize != 64 {
			Skip("the figure is that of 64-bit processors")
		}
		Expect(int(unsafe.Sizeof(redislock.Lock{}))).To(BeNumerically("<=", 480))
	})
})

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
	It("end as a simple model predicts, step by step", Label(spec.Random), func(ctx SpecContext) {
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
