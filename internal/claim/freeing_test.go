package claim

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/goredis"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/transport"
)

// These tests carry out freeings at a server that answers as a test says. Each has failed once.

// scripted is a client on which a function answers each release: from its number, and the keys that it frees.
type scripted struct {
	redis.Scripter

	sent   atomic.Int64
	answer func(n int64, keys []string) (any, error)
}

func (s *scripted) EvalSha(_ context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	return redis.NewCmdResult(s.answer(s.sent.Add(1), keys[:args[1].(int)])) // ARGV[2] is how many keys there are
}

// newLedger returns the ledger of a Client on such a client.
func newLedger(t *testing.T, answer func(n int64, keys []string) (any, error)) (*Ledger, *scripted) {
	t.Helper()
	s := &scripted{answer: answer}
	conn, err := goredis.New(s)
	if err != nil {
		t.Fatal(err)
	}
	r := transport.New(conn)
	return &Ledger{
		Link: r.Link(true), Scripts: script.New(script.Sources{}, script.Guard{}),
		Closed: make(chan struct{}), Running: new(atomic.Int64),
	}, s
}

func newClaim(l *Ledger, origin Origin, lasts time.Duration) *Claim {
	return &Claim{Ledger: l, Keys: script.Box([]string{"a", "b"}), Token: "T", Origin: origin, Lasts: lasts}
}

// newWaiting returns a claim whose first release has been answered, and found nothing, while an ask is under way; and that
// release. What follows from it has not begun.
func newWaiting(t *testing.T, l *Ledger, origin Origin) (*Claim, *round) {
	t.Helper()
	c := newClaim(l, origin, time.Minute)
	c.Ask()
	last := 0
	call, _, _ := c.enter(t.Context(), &last)
	first := &round{last: call}
	c.send(t.Context(), first)
	if next, err := c.conclude(call, true); next != waiting || err != nil {
		t.Fatal(next, err)
	}
	return c, first
}

// release frees a claim that is valid for its ttl.
func release(c *Claim) (Found, error) {
	until := time.Now().Add(c.Lasts)
	return c.Free(context.Background(), Terms{Why: Release, Until: until, Held: until})
}

var (
	errNetwork = errors.New("connection reset")
	nothingBut = func(err error) func(int64, []string) (any, error) {
		return func(int64, []string) (any, error) {
			time.Sleep(time.Millisecond)
			return nil, err
		}
	}
)

// A Free that joins a freeing returns the error of that, if there is no room for it or its keys have expired.
func TestWhoJoinsIsToldThatNothingWasFreed(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"no room": time.Minute, "expired": 20 * time.Millisecond} {
		bubble.Test(t, func(t *testing.T) {
			l, _ := newLedger(t, nothingBut(errNetwork))
			l.Running.Store(MaxFreeings)
			if name == "expired" {
				l.Running.Store(0)
			}
			events := make(chan Event, 1000)
			l.Report = func(_ context.Context, e Event) { events <- e }
			for range 50 {
				c := newClaim(l, Random, lasts)
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						if found, err := release(c); err == nil {
							t.Errorf("%s: %+v", name, found)
						}
					})
				}
				all.Wait()
			}
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
			for range len(events) {
				if e := <-events; e.Err == nil && !e.Dropped {
					t.Errorf("%s: %+v", name, e)
				}
			}
		})
	}
}

// A position that is given up without an answer may stay, and the freeing says so. It does not if a later round is answered.
func TestAPositionThatMayStay(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		after int64 // so many failures, a round is answered
		stays bool
	}{
		"never answered": {errNetwork, math.MaxInt64, true},
		"refused":        {refusal("NOPERM no"), math.MaxInt64, true},
		"answered":       {errNetwork, 3, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			l, _ := newLedger(t, func(n int64, _ []string) (any, error) {
				if n > c.after {
					return int64(0), nil
				}
				return nil, c.err
			})
			var stays atomic.Bool
			leaving := newClaim(l, Random, 10*time.Second)
			leaving.Take(Rest{Line: Position{Entry: "us/1 1 60000 0 T", Stays: &stays}})
			leaving.Drop(t.Context(), Terms{Why: Line}, leaving.Keys.Names)
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
			if stays.Load() != c.stays {
				t.Errorf("%s: it may stay: %v", name, stays.Load())
			}
		})
	}
}

// While an ask hangs for longer than the keys last, a Release neither hangs nor succeeds.
func TestKeysThatExpireWhileAnAskIsUnderWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, _ := newLedger(t, nothingBut(errNetwork))
		c := newClaim(l, Random, 300*time.Millisecond)
		c.Ask()
		if _, err := release(c); err == nil {
			t.Fatal("nothing was answered")
		}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				if found, err := release(c); err == nil {
					t.Errorf("after %d ms: %+v", 10*i, found)
				}
			})
		}
		all.Wait()
		c.Ended(nil, false)
	})
}

// What an ask takes late is freed, although the keys of the hold would have expired by then.
func TestWhatIsTakenLateLastsLonger(t *testing.T) {
	for name, takes := range map[string]time.Duration{"while it rests": 900 * time.Millisecond, "while it sends": 1100 * time.Millisecond} {
		bubble.Test(t, func(t *testing.T) {
			began, up := time.Now(), 1500*time.Millisecond
			var freed atomic.Bool
			l, _ := newLedger(t, func(n int64, _ []string) (any, error) {
				if name == "while it sends" && n == 1 {
					time.Sleep(1200 * time.Millisecond)
					return int64(0), nil
				}
				if time.Since(began) < up {
					return nil, errNetwork
				}
				freed.Store(true)
				return int64(0), nil
			})
			c := newClaim(l, Random, time.Second)
			c.Ask()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_, _ = c.Free(ctx, Terms{Until: time.Now().Add(time.Second)})
			time.Sleep(takes)
			c.Ended([]string{"a"}, false)
			for l.IsBusy() {
				time.Sleep(time.Millisecond)
			}
			if !freed.Load() {
				t.Errorf("%s: given up after %v", name, time.Since(began))
			}
		})
	}
}

// A reply that no script gives frees nothing, so a later Release tries again.
func TestReleaseAfterAnUnexpectedReply(t *testing.T) {
	l, s := newLedger(t, func(n int64, _ []string) (any, error) {
		if n == 1 {
			return "?", nil
		}
		return int64(0), nil
	})
	c := newClaim(l, Attached, time.Minute)
	if _, err := release(c); err == nil {
		t.Error("the reply means nothing")
	}
	if found, err := release(c); err != nil || s.sent.Load() != 2 {
		t.Errorf("%+v, %v, %d releases", found, err, s.sent.Load())
	}
}

// Whatever was asked of the claim in between, it is freed once.
func TestSecondRelease(t *testing.T) {
	l, s := newLedger(t, func(int64, []string) (any, error) { return int64(0), nil })
	c := newClaim(l, Random, time.Minute)
	for range 2 {
		if found, err := release(c); err != nil || !found.IsNone() || s.sent.Load() != 1 {
			t.Errorf("%+v, %v, %d releases", found, err, s.sent.Load())
		}
		<-c.Begun()
	}
}

// With a custom token, a later release frees only what was taken since the last one that was answered, unless a refresh is in
// doubt, which concerns the keys of this hold.
func TestLaterReleasesWithACustomToken(t *testing.T) {
	for name, doubt := range map[string]bool{"what was taken": false, "a refresh in doubt": true} {
		bubble.Test(t, func(t *testing.T) {
			var sent [][]string
			l, _ := newLedger(t, func(_ int64, keys []string) (any, error) {
				sent = append(sent, slices.Clone(keys))
				return int64(0), nil
			})
			c := newClaim(l, Custom, time.Minute)
			for range 3 {
				c.Ask()
			}
			c.Ended([]string{"a"}, false)
			if _, err := release(c); err != nil {
				t.Error(err)
			}
			want := [][]string{{"a", "b"}, {"b"}}
			if doubt {
				c.RefreshEnded(nil, true)
				want = [][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}
			} else {
				c.Ended(nil, true) // of an obtain: what it takes may be of another hold
			}
			c.Ended([]string{"b"}, false)
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
			if !slices.EqualFunc(sent, want, slices.Equal) {
				t.Errorf("%s: %v, want %v", name, sent, want)
			}
		})
	}
}

// When the asks have ended, a Release that has found nothing returns, although an older one was in doubt.
func TestDoubtIsNotWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, _ := newLedger(t, func(int64, []string) (any, error) { return []any{int64(-1), int64(-2)}, nil })
		c := newClaim(l, Random, time.Minute)
		c.Ask()
		c.Ask()
		c.Ended(nil, true)
		time.AfterFunc(100*time.Millisecond, func() { c.Ended(nil, false) })
		began := time.Now()
		if found, err := release(c); err != nil || !found.IsWhole() || time.Since(began) > 150*time.Millisecond {
			t.Errorf("%+v, %v after %v", found, err, time.Since(began))
		}
		for l.IsBusy() {
			time.Sleep(time.Second)
		}
	})
}

// When an ask ends between the first release and what follows from that, nothing follows, also without room.
func TestFreedBeforeTheRestBegins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, s := newLedger(t, func(int64, []string) (any, error) { return []any{int64(-1), int64(-2)}, nil })
		l.Running.Store(MaxFreeings)
		l.Report = func(_ context.Context, e Event) {
			if e.Dropped {
				t.Errorf("%+v", e)
			}
		}
		c, first := newWaiting(t, l, Custom)
		if !l.IsBusy() {
			t.Fatal("nothing is under way")
		}
		c.Ended(nil, false)
		c.background(first, Terms{}).begin(waiting, nil)
		for l.IsBusy() {
			time.Sleep(time.Millisecond)
		}
		if _, err := release(c); c.state.phase != freed || err != nil || s.sent.Load() != 1 {
			t.Errorf("phase %v, %v, %d releases", c.state.phase, err, s.sent.Load())
		}
	})
}

// A freeing that was given up after it has told what it found begins again with the next Release.
func TestGivenUpAfterAFinding(t *testing.T) {
	for name, room := range map[string]int64{"refused": 0, "without room": MaxFreeings} {
		bubble.Test(t, func(t *testing.T) {
			var has atomic.Bool
			has.Store(true)
			l, _ := newLedger(t, func(n int64, _ []string) (any, error) {
				time.Sleep(50 * time.Millisecond)
				switch {
				case n == 2 && room == 0:
					return nil, refusal("NOPERM")
				case has.Swap(false):
					return int64(0), nil
				}
				return []any{int64(-1), int64(-2)}, nil
			})
			l.Running.Store(room)
			c := newClaim(l, Random, time.Minute)
			c.Ask()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			if _, err := c.Free(ctx, Terms{Why: Release, Until: time.Now().Add(time.Minute)}); err == nil {
				t.Error(name, ": was not cut")
			}
			time.Sleep(100 * time.Millisecond)
			has.Store(true) // by the ask
			c.Ended(c.Keys.Names, false)
			for l.IsBusy() {
				time.Sleep(time.Millisecond)
			}
			if found, err := release(c); err != nil || !found.IsNone() || has.Load() {
				t.Errorf("%s: %+v, %v; the keys are there: %v", name, found, err, has.Load())
			}
		})
	}
}

// What a release without a reply may have freed stays in doubt until a round decides.
func TestDoubtOutlastsARoundThatDecidesNothing(t *testing.T) {
	for name, doubt := range map[string]bool{"an ask in doubt": true, "an ask that has taken nothing": false} {
		bubble.Test(t, func(t *testing.T) {
			l, _ := newLedger(t, func(n int64, _ []string) (any, error) {
				if n == 1 { // executed
					return nil, errNetwork
				}
				return []any{int64(-1), int64(-2)}, nil
			})
			c := newClaim(l, Random, time.Minute)
			c.Ask()
			time.AfterFunc(100*time.Millisecond, func() { c.RefreshEnded(nil, doubt) })
			if _, err := release(c); err == nil {
				t.Error(name, ": the first release was not answered")
			}
			if found, err := release(c); err != nil || !found.IsNone() {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
		})
	}
}

// With a custom token, a release of no key is not sent: a Ring or a Cluster would not know where.
func TestNothingToRelease(t *testing.T) {
	for name, room := range map[string]int64{"an ask ends before the next release is made": 0, "given up after a finding": MaxFreeings} {
		bubble.Test(t, func(t *testing.T) {
			l, _ := newLedger(t, func(n int64, keys []string) (any, error) {
				time.Sleep(time.Duration(room)) // the first Release is cut
				if len(keys) == 0 {
					t.Errorf("%s: release %d is of no key", name, n)
				}
				if n == 1 && room == 0 {
					return nil, errNetwork
				}
				return int64(0), nil
			})
			l.Running.Store(room)
			c := newClaim(l, Custom, time.Minute)
			c.Ask()
			ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
			defer cancel()
			_, _ = c.Free(ctx, Terms{Until: time.Now().Add(time.Minute)})
			time.Sleep(time.Millisecond)
			c.on(hurry)
			c.RefreshEnded(nil, false)
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
			if found, err := release(c); err != nil || !found.IsNone() {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		})
	}
}

// A step back of a waiter that was granted nothing needs no room.
func TestStepBackWithoutRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, s := newLedger(t, func(int64, []string) (any, error) { return int64(0), nil })
		l.Running.Store(MaxFreeings)
		c := newClaim(l, Random, time.Minute)
		done := make(chan struct{})
		c.StepBack(l.Release(t.Context(), c.Token, c.Keys.OnlyLines()), func() { close(done) })
		<-done
		if s.sent.Load() != 1 {
			t.Errorf("%d releases", s.sent.Load())
		}
	})
}

// A stray of which a claim learns while it waits for others is waited for as well.
func TestTakeWhileTheFreeingWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, s := newLedger(t, func(int64, []string) (any, error) { return int64(0), nil })
		c := newClaim(l, Random, time.Minute)
		c.Ask()
		if _, err := release(c); err != nil {
			t.Error(err)
		}
		time.Sleep(50 * time.Millisecond)
		stray := &transport.Call{Err: errNetwork, Doubtful: true}
		stray.Plan()
		c.Take(Rest{Strays: []*transport.Call{stray}})
		c.Ended(nil, false)
		time.Sleep(time.Second)
		stray.Finish()
		for l.IsBusy() {
			time.Sleep(time.Second)
		}
		if s.sent.Load() != 3 {
			t.Errorf("%d releases: one at once, one after the stray, and one a second later", s.sent.Load())
		}
	})
}

// What a stray has taken that has ended before the Release is freed by the first release, and not once more: with a custom
// token, somebody else may have obtained the keys since.
func TestStrayThatHasEndedBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, s := newLedger(t, func(int64, []string) (any, error) { return int64(0), nil })
		c := newClaim(l, Custom, time.Minute)
		stray := &transport.Call{Reply: int64(1)}
		stray.Plan()
		c.Take(Rest{Strays: []*transport.Call{stray}})
		stray.Finish()
		if _, err := release(c); err != nil {
			t.Error(err)
		}
		for l.IsBusy() {
			time.Sleep(time.Second)
		}
		if s.sent.Load() != 1 {
			t.Errorf("%d releases", s.sent.Load())
		}
	})
}

// While the lock's obtain is under way, a release that finds no keys says nothing of the lock.
func TestReleaseThatOvertakesTheObtain(t *testing.T) {
	for name, c := range map[string]struct {
		room  int64
		taken []string
		after time.Duration
		want  int // so many keys are lost
	}{
		"which is granted":   {0, []string{"a", "b"}, 200 * time.Millisecond, 0},
		"which is refused":   {0, nil, 200 * time.Millisecond, 2},
		"without room":       {MaxFreeings, []string{"a", "b"}, 200 * time.Millisecond, 2},
		"which does not end": {0, []string{"a", "b"}, time.Hour, 2},
	} {
		bubble.Test(t, func(t *testing.T) {
			var held atomic.Bool
			l, _ := newLedger(t, func(int64, []string) (any, error) {
				time.Sleep(time.Millisecond)
				if held.Swap(false) {
					return int64(0), nil
				}
				return []any{int64(-1), int64(-2)}, nil
			})
			l.Running.Store(c.room)
			claim := newClaim(l, Random, time.Minute)
			claim.Ask()
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if found, err := release(claim); err != nil || len(found.Keys) != c.want {
						t.Errorf("%s: %+v, %v", name, found, err)
					}
				})
			}
			time.Sleep(c.after)
			held.Store(c.taken != nil)
			claim.Ended(c.taken, false)
			all.Wait()
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
			if held.Load() && c.room == 0 {
				t.Error(name, ": the keys are left")
			}
		})
	}
}

// A freeing goes on until the keys have expired, however long its last pause is, and does not call them lost before.
func TestTheLastPauseEndsWithTheKeys(t *testing.T) {
	for _, asks := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			const ttl = 6 * time.Second
			began, up := time.Now(), 3600*time.Millisecond
			var freed atomic.Bool
			l, _ := newLedger(t, func(int64, []string) (any, error) {
				if time.Since(began) < up {
					return nil, errNetwork
				}
				freed.Store(true)
				return int64(0), nil
			})
			c := newClaim(l, Random, ttl)
			if asks {
				c.Ask()
			}
			if _, err := release(c); err == nil {
				t.Error("nothing was answered")
			}
			time.Sleep(4*time.Second - time.Since(began))
			if found, err := release(c); err != nil || found.IsWhole() || !freed.Load() {
				t.Errorf("%+v, %v", found, err)
			}
			if asks {
				c.Ended(nil, false)
			}
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
		})
	}
}

// A Free that joins another one may return first: because its ctx ends, or with what was found. An obtain with the same token
// then waits until the other one sends nothing more.
func TestWhoJoinsLeavesWork(t *testing.T) {
	for name, c := range map[string]struct {
		patience time.Duration
		doubt    bool
	}{"and leaves": {50 * time.Millisecond, false}, "and is told": {time.Hour, true}} {
		bubble.Test(t, func(t *testing.T) {
			var last time.Time
			l, _ := newLedger(t, func(int64, []string) (any, error) {
				time.Sleep(time.Second)
				last = time.Now()
				return int64(0), nil
			})
			claim := newClaim(l, Custom, time.Minute)
			claim.Ask()
			claim.RefreshEnded(nil, c.doubt)
			go func() { _, _ = release(claim) }()
			time.Sleep(100 * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), c.patience)
			defer cancel()
			if _, err := claim.Free(ctx, Terms{Why: Release, Until: time.Now().Add(time.Minute)}); (err == nil) != c.doubt {
				t.Error(name, err)
			}
			if !l.IsBusy() {
				t.Error(name, ": Close would not wait")
			}
			if err := l.Await(context.Background(), claim.Token, claim.Keys.Names); err != nil {
				t.Error(name, err)
			}
			obtained := time.Now()
			time.Sleep(10 * time.Second)
			if last.After(obtained) {
				t.Error(name, ": a release came after the obtain")
			}
		})
	}
}

// If an ask ends in the moment in which the patience for it is over, a round follows, and the last one decides nothing.
func TestPatienceThatEndsWithTheAsk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, _ := newLedger(t, func(n int64, _ []string) (any, error) {
			if n == 1 {
				return []any{int64(-1), int64(-2)}, nil
			}
			return int64(0), nil
		})
		c, first := newWaiting(t, l, Random)
		f := c.background(first, Terms{})
		c.Ended(c.Keys.Names, false)
		f.decide() // as await does if it sees its timer first
		f.begin(sending, nil)
		if found, err := release(c); err != nil || !found.IsNone() {
			t.Errorf("%+v, %v", found, err)
		}
		for l.IsBusy() {
			time.Sleep(time.Second)
		}
	})
}

// Whether an unanswered release has freed the keys depends on until when they were known to be there before it was sent.
func TestUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		held, lost time.Duration // until when the keys were known to be there, and the others of those that were found lost
		taken      int           // how many keys an ask has taken meanwhile
		want       Found
	}{
		"not known": {want: Found{Loss: whole, Unknown: true, Doubtful: true}},
		"before":    {held: -time.Second, lost: -time.Second, want: Found{Loss: whole, Unknown: true, Doubtful: true}},
		"known":     {held: time.Second, want: Found{Doubtful: true}},
		"some lost": {held: -time.Second, lost: time.Second, want: Found{Loss: some, Doubtful: true}},
		"taken":     {taken: 2, want: Found{Doubtful: true}},
	} {
		bubble.Test(t, func(t *testing.T) {
			l, _ := newLedger(t, func(n int64, _ []string) (any, error) {
				if n == 1 {
					return nil, errNetwork
				}
				return []any{int64(-1), int64(-2)}, nil
			})
			claim := newClaim(l, Random, time.Minute)
			now := time.Now()
			if c.lost != 0 {
				claim.Lose(some, now.Add(c.lost))
			}
			claim.Ask()
			terms := Terms{Until: now.Add(time.Minute), Held: now.Add(c.held)}
			if _, err := claim.Free(t.Context(), terms); err == nil {
				t.Error(name, ": the first release was not answered")
			}
			claim.Ended(claim.Keys.Names[:c.taken], false)
			if found, err := claim.Free(t.Context(), terms); err != nil || !reflect.DeepEqual(found, c.want) {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
			for l.IsBusy() {
				time.Sleep(time.Second)
			}
		})
	}
}

var (
	whole = script.Loss{Keys: []string{"a", "b"}, Total: 2}
	some  = script.Loss{Keys: []string{"a"}, Total: 2}
)
