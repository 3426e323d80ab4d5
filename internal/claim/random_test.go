package claim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/transport"
)

// The tests below carry out freeings in fake time, with everything at random: when requests are executed and answered,
// whether replies are lost, outages, who joins and leaves. Afterwards, nothing may be left. A failure names its seed:
// REDISLOCK_TEST_SEED repeats that, and REDISLOCK_TEST_RUNS says how many seeds to try.

func TestRandomReleases(t *testing.T) { eachSeed(t, 3000, randomRelease) }

func TestRandomDrops(t *testing.T) { eachSeed(t, 3000, randomDrop) }

func eachSeed(t *testing.T, runs int, run func(*testing.T, *chance)) {
	first := uint64(1)
	if given, err := strconv.Atoi(os.Getenv("REDISLOCK_TEST_RUNS")); err == nil {
		runs = given
	}
	if given, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
		first, runs = given, 1
	}
	for seed := first; seed < first+uint64(runs) && !t.Failed(); seed++ {
		bubble.Test(t, func(t *testing.T) {
			run(t, &chance{random: rand.New(rand.NewPCG(seed, 1))})
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

// chance is a source of random choices for many goroutines.
type chance struct {
	mu     sync.Mutex
	random *rand.Rand
}

func (c *chance) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(max(1, n))
}

func (c *chance) oneIn(n int) bool { return c.below(n) == 0 }

func (c *chance) ms(n int) time.Duration { return time.Duration(c.below(n)) * time.Millisecond }

// keyspace is a server with the keys a and b, of which only the token of the claim is of interest.
type keyspace struct {
	*chance

	ttl    time.Duration
	outage time.Time // until then, no release is answered
	flaky  time.Time // until then, half of them are not
	final  bool      // some of these are refused for good

	mu      sync.Mutex
	has     map[string]int       // by key: 1 if it was there at the beginning, otherwise another number
	expires map[string]time.Time // by key
	last    int
	refused bool // one was refused for good
	left    bool // something was taken that may be of a later hold, and so is left alone
	log     []string
}

func newKeyspace(c *chance, ttl time.Duration) *keyspace {
	now := time.Now()
	return &keyspace{
		chance: c, ttl: ttl, outage: now.Add(c.ms(8000) * time.Duration(c.below(2))), flaky: now.Add(c.ms(8000) * time.Duration(c.below(2))),
		has: map[string]int{}, expires: map[string]time.Time{}, last: 1,
	}
}

// note writes to the log, and lets keys expire. The caller holds k.mu.
func (k *keyspace) note(format string, args ...any) {
	now := time.Now()
	for key, end := range k.expires {
		if !now.Before(end) {
			delete(k.has, key)
			delete(k.expires, key)
		}
	}
	k.log = append(k.log, now.Format("05.000 ")+fmt.Sprintf(format, args...))
}

// take acquires the keys that nobody has, and prolongs the others. The caller holds k.mu.
func (k *keyspace) take() (taken []string) {
	k.note("take")
	for _, key := range []string{"a", "b"} {
		if k.has[key] == 0 {
			k.last++
			k.has[key], taken = k.last, append(taken, key)
		}
		k.expires[key] = time.Now().Add(k.ttl)
	}
	return taken
}

// release answers one release.
func (k *keyspace) release(keys []string) (any, error) {
	time.Sleep(k.ms(30) + 1)
	defer func() { time.Sleep(k.ms(300) * time.Duration(k.below(2))) }()
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	fails := now.Before(k.outage) || now.Before(k.flaky) && k.oneIn(2)
	switch {
	case fails && k.final && k.oneIn(6):
		k.refused = true
		return nil, refusal("NOPERM")
	case fails && k.oneIn(2):
		k.note("a release of %v does not arrive", keys)
		return nil, errNetwork
	}
	k.note("a release of %v is executed; it fails: %v", keys, fails)
	var gone []any
	for i, key := range keys {
		if k.has[key] == 0 {
			gone = append(gone, int64(-i-1))
		}
		delete(k.has, key)
	}
	switch {
	case fails:
		return nil, errNetwork
	case gone != nil:
		return gone, nil
	}
	return int64(0), nil
}

// refusal is an error of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// ask runs an ask that has begun, for up to so long, and ends it.
func (k *keyspace) ask(c *Claim, all *sync.WaitGroup, longest time.Duration, refreshes bool) {
	finish := c.Ended
	if refreshes {
		finish = c.RefreshEnded
	}
	time.Sleep(time.Duration(k.below(int(longest))))
	var taken []string
	switch k.below(4) {
	case 0:
	case 1:
		if late := k.ms(990); k.oneIn(2) {
			all.Go(func() {
				time.Sleep(late)
				k.mu.Lock()
				defer k.mu.Unlock()
				k.take()
				k.left = k.left || c.Origin == Custom && !refreshes
			})
		}
		finish(nil, true)
		return
	default:
		k.mu.Lock()
		taken = k.take()
		k.mu.Unlock()
		time.Sleep(k.ms(300))
		if c.Origin != Custom && !refreshes { // an obtain does not know which keys it had before
			taken = c.Keys.Names
		}
	}
	finish(taken, false)
}

// stray returns a call that ends after a while.
func (k *keyspace) stray(c *Claim, all *sync.WaitGroup) *transport.Call {
	stray := &transport.Call{}
	stray.Plan()
	all.Go(func() {
		defer stray.Finish()
		time.Sleep(k.ms(9000))
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.oneIn(3) {
			stray.Err, stray.Doubtful = errNetwork, true
			if k.oneIn(2) {
				k.take()
				k.left = k.left || c.Origin == Custom
			}
			return
		}
		before := len(k.has)
		taken := k.take()
		switch { // the indices are those of the keys that it had before
		case c.Origin != Custom || before == 0:
			stray.Reply = int64(1)
		case len(taken) == 1:
			stray.Reply = []any{int64(0), map[string]int64{"a": 2, "b": 1}[taken[0]]}
		default:
			stray.Reply = []any{int64(0), int64(1), int64(2)}
		}
	})
	return stray
}

// check says what is wrong when all has ended.
func (k *keyspace) check(t *testing.T, l *Ledger, all *sync.WaitGroup, mayStay int) {
	t.Helper()
	all.Wait()
	for i := 0; l.IsBusy(); i++ {
		if time.Sleep(time.Second); i > 1000 {
			t.Fatal("busy for ever")
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note("the end")
	for key, which := range k.has {
		if which != mayStay {
			t.Errorf("%s is left", key)
		}
	}
	if running := l.Running.Load(); running%MaxFreeings != 0 {
		t.Errorf("%d freeings", running)
	}
	if t.Failed() {
		for _, line := range k.log {
			t.Log(line)
		}
	}
}

// randomRelease releases a hold several times, while requests may take its keys.
func randomRelease(t *testing.T, random *chance) {
	k := newKeyspace(random, []time.Duration{3 * time.Second, time.Minute}[random.below(2)])
	k.final = k.oneIn(4)
	k.has["a"], k.has["b"] = 1, 1
	until := time.Now().Add(k.ttl)
	k.expires["a"], k.expires["b"] = until, until
	l, _ := newLedger(t, func(_ int64, keys []string) (any, error) { return k.release(keys) })
	crowded := k.oneIn(6)
	if crowded {
		l.Running.Store(MaxFreeings)
	}
	c := newClaim(l, []Origin{Attached, Custom, Random, Random}[k.below(4)], k.ttl)
	var all sync.WaitGroup
	for range k.below(3) {
		c.Ask()
		all.Go(func() { k.ask(c, &all, 5*time.Second, k.oneIn(2)) })
	}
	if k.oneIn(3) {
		c.Ask()
		all.Go(func() {
			time.Sleep(k.ms(300))
			c.Take(Rest{Strays: []*transport.Call{k.stray(c, &all), k.stray(c, &all)}, Doubtful: k.oneIn(2)})
			c.Ended(nil, false)
		})
	}
	for range 1 + k.below(5) {
		after, patience := k.ms(6000), k.ms(200)+time.Duration(k.below(2))*5*time.Second
		all.Go(func() {
			time.Sleep(after)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			began := time.Now()
			found, err := c.Free(ctx, Terms{Why: Release, Until: until, Held: until, Lasts: k.ttl})
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.note("a Free returns %v", err); err == nil && (k.has["a"] == 1 || k.has["b"] == 1) {
				t.Error("a Free has returned nil, and the keys of the hold are there")
			}
			if err == nil && k.ttl == time.Minute && found.IsWhole() {
				t.Error("a Free has found lost what it has freed")
			}
			if took := time.Since(began); took > patience+time.Second+time.Millisecond {
				t.Errorf("a Free took %v of %v", took, patience)
			}
		})
	}
	all.Wait()
	for l.IsBusy() { // a freeing that was refused, or had no room, goes on with the next Free
		time.Sleep(time.Second)
	}
	if crowded || k.refused || k.left { // the rest expires
		time.Sleep(2 * k.ttl)
	}
	k.check(t, l, &all, 0)
}

// randomDrop drops what an obtain may have taken.
func randomDrop(t *testing.T, random *chance) {
	k := newKeyspace(random, time.Minute)
	l, _ := newLedger(t, func(_ int64, keys []string) (any, error) { return k.release(keys) })
	closed := make(chan struct{})
	l.Closed = closed
	c := newClaim(l, []Origin{Custom, Random, Random}[k.below(3)], k.ttl)
	if c.Origin == Custom { // an earlier hold has a, and for longer
		k.has["a"], k.expires["a"] = 1, time.Now().Add(time.Hour)
	}
	var all sync.WaitGroup
	var rest Rest
	k.mu.Lock()
	if k.oneIn(3) {
		rest.Taken = k.take()
	}
	k.mu.Unlock()
	for range k.below(4) {
		rest.Strays = append(rest.Strays, k.stray(c, &all))
	}
	done := 1
	if c.Take(rest); c.Origin == Random && k.oneIn(4) {
		done = 0
		c.StepBack(l.Release(t.Context(), c.Token, c.Keys), func() { done++ })
	} else {
		c.Drop(t.Context(), Terms{Why: Abandoned}, c.Keys.Names)
	}
	if k.oneIn(5) {
		time.Sleep(k.ms(3000))
		close(closed)
	}
	all.Wait()
	for l.IsBusy() {
		time.Sleep(time.Second)
	}
	if done != 1 {
		t.Errorf("done was called %d times", done)
	}
	if c.Origin == Custom && k.has["a"] != 1 {
		t.Error("the earlier hold was freed")
	}
	if k.left {
		time.Sleep(2 * k.ttl)
	}
	k.check(t, l, &all, 1)
}
