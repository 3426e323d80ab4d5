package topology

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/torture/internal/plan"
)

func TestTheClockOfAServerMoves(t *testing.T) {
	if !CanMoveClocks() {
		t.Skip("clocks cannot be moved here")
	}
	s := start(t, "one").(*one)
	// The server writes each command to its disk before it answers, which may be busy.
	client := redis.NewClient(&redis.Options{Addr: s.server.Addr(), MaxRetries: -1, ReadTimeout: 10 * time.Second})
	defer client.Close()
	ctx := t.Context()
	ahead := func() time.Duration {
		shown, err := client.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(shown)
	}
	expect := func(want time.Duration) {
		t.Helper()
		const near = 100 * time.Millisecond
		if got := ahead(); got < want-near || got > want+near {
			t.Errorf("the clock is %v ahead, want %v", got, want)
		}
	}
	expect(0)
	if err := client.Set(ctx, "k", "v", 10*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.clock.move(9500*time.Millisecond, 1); err != nil {
		t.Fatal(err)
	}
	expect(9500 * time.Millisecond)
	if left := client.PTTL(ctx, "k").Val(); left > 600*time.Millisecond {
		t.Errorf("the key has %v left", left)
	}
	if harm, err := s.Inject(ctx, plan.Fault{Kind: plan.ClockBack, Delay: 300 * time.Millisecond}); err != nil || harm.Everything {
		t.Errorf("%+v, %v", harm, err)
	}
	expect(9 * time.Second)
	if harm, err := s.Inject(ctx, plan.Fault{Kind: plan.ClockForward, Delay: 300 * time.Millisecond}); err != nil || !harm.Everything {
		t.Errorf("%+v, %v", harm, err)
	}
	expect(9500 * time.Millisecond)

	if err := s.clock.move(0, 11); err != nil { // a speed that shows
		t.Fatal(err)
	}
	before, began := ahead(), time.Now()
	time.Sleep(100 * time.Millisecond)
	after := ahead()
	if gained, passed := after-before, time.Since(began); gained < passed*9 || gained > passed*11 {
		t.Errorf("in %v the clock gained %v", passed, gained)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if harm, err := s.Inject(ended, plan.Fault{Kind: plan.ClockDrift, For: time.Hour}); err != nil || harm.Everything || s.clock.speed != 1 {
		t.Errorf("%+v, %v, speed %v", harm, err, s.clock.speed)
	}
}

// The clock is set back while a script runs, by more than the ttl: what the script has granted is there.
func TestHoldsOutliveAClockThatGoesBack(t *testing.T) {
	if !CanMoveClocks() {
		t.Skip("clocks cannot be moved here")
	}
	s := start(t, "one").(*one)
	client := redis.NewClient(&redis.Options{Addr: s.server.Addr(), MaxRetries: -1})
	defer client.Close()
	ctx := t.Context()
	run := func(source string, args ...any) any {
		reply, err := client.Eval(ctx, source, []string{"a", "ha"}, args...).Result()
		if err != nil {
			t.Error(err)
		}
		return reply
	}
	const modes = "1 1=2" // two may hold the key
	obtain, refresh := source(t, "obtain"), source(t, "refresh")
	begin := func(token, metadata string, ttl int) { run(obtain, token, metadata, ttl, modes, "0") }
	for name, c := range map[string]struct {
		before func()
		source string
		args   []any
	}{
		"an obtain": {
			func() {},
			obtain, []any{"t", "", 60_000, modes, "0"},
		},
		"a Refresh to a shorter ttl": {
			func() { begin("t", "", 120_000) },
			refresh, []any{"t", 60_000, "", "0", "", modes},
		},
		"a Refresh with metadata, beside another": {
			func() { begin("t", "m", 120_000); begin("u", "", 200_000) },
			refresh, []any{"t", 60_000, "new", "0", "", modes},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client.FlushAll(ctx)
			c.before()
			const wait = "local began = redis.call('TIME')[1] while redis.call('TIME')[1] >= began do end\n"
			over := make(chan any)
			go func() { over <- run(wait+c.source, c.args...) }()
			time.Sleep(100 * time.Millisecond) // the script has begun
			if err := s.clock.move(-100*time.Second, 1); err != nil {
				t.Fatal(err)
			}
			t.Log("the reply:", <-over)
			if n := client.Exists(ctx, "a", "ha").Val(); n != 2 {
				t.Errorf("of the key and its house, %d exist", n)
			}
			for _, holder := range client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "ha", ByScore: true, Start: "0", Stop: "+inf"}).Val() {
				if reply := run(refresh, holder, 60_000, "", "1", "", modes); reply != int64(0) {
					t.Errorf("a renewal of %s: %v", holder, reply)
				}
			}
		})
	}
}

// source returns a script as the library sends it, without a guard. Package spec does the same, and needs ginkgo.
func source(t *testing.T, name string) string {
	t.Helper()
	read := func(file string) string {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := read(name + ".lua")
	for _, part := range []string{"line", "shared", "note"} {
		text = strings.Replace(text, "-- include "+part+"\n", read("internal/script/"+part+".lua"), 1)
	}
	return strings.Replace(text, "-- include marker\n", "", 1)
}
