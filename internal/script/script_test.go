package script_test

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

var scripts = script.New(script.Sources{}, script.Guard{})

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

func TestReadGrant(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for _, test := range []struct {
		reply any
		want  script.Grant
	}{
		{int64(0), script.Grant{}},
		{int64(1), script.Grant{Granted: true, Taken: keys}},
		{[]any{int64(7)}, script.Grant{Granted: true, Fence: 7, Taken: keys}},
		{[]any{int64(7), int64(1), int64(3)}, script.Grant{Granted: true, Fence: 7, Taken: []string{"b"}}},
		{[]any{int64(0), int64(1), int64(2), int64(3)}, script.Grant{Granted: true}},
		{
			[]any{int64(-1), int64(250), int64(42), int64(1e15), []any{int64(1), int64(3)}},
			script.Grant{Wait: 250 * time.Millisecond, Ticket: 42, Served: 1e15, Made: []string{"a", "c"}},
		},
		{
			[]any{int64(-2), int64(1500), "id"},
			script.Grant{Closure: script.Closure{For: 1500 * time.Millisecond, Term: "id"}},
		},
		{
			[]any{int64(-1), int64(0), int64(42), int64(1e15), []any{}, int64(1500), "id"},
			script.Grant{
				Ticket: 42, Served: 1e15,
				Closure: script.Closure{For: 1500 * time.Millisecond, Term: "id"},
			},
		},
	} {
		got, err := script.ReadGrant(keys, test.reply)
		want(t, "error", err, nil)
		want(t, "grant", got, test.want)
	}
	for _, reply := range []any{
		nil, int64(2), "OK", []any{}, []any{"1"}, []any{int64(-1)}, []any{int64(-2), int64(1)}, []any{int64(-2), int64(1), "id", int64(1)},
		[]any{int64(-2), "soon", "id"}, []any{int64(-2), int64(0), "id"}, []any{int64(-2), int64(1500), int64(7)},
		[]any{int64(-1), int64(250), int64(42), int64(1e15), int64(0), int64(1500)},
		[]any{int64(-1), int64(250), int64(42), int64(1e15), int64(0), nil, nil},
	} {
		if got, err := script.ReadGrant(keys, reply); err == nil || got.Granted {
			t.Errorf("reply %v: got %+v, want an error", reply, got)
		}
	}
}

func TestReadLoss(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for _, test := range []struct {
		reply       any
		want        script.Loss
		none, whole bool
	}{
		{int64(0), script.Loss{}, true, false},
		{[]any{int64(-2)}, script.Loss{Keys: []string{"b"}, Total: 3}, false, false},
		{[]any{int64(-1), int64(2), int64(3)}, script.Loss{Keys: keys, Taken: 2, Other: "b", Total: 3}, false, true},
	} {
		got, err := script.ReadLoss(keys, test.reply)
		want(t, "error", err, nil)
		want(t, "loss", got, test.want)
		want(t, "none", got.IsNone(), test.none)
		want(t, "whole", got.IsWhole(), test.whole)
	}
	for _, reply := range []any{nil, int64(1), "OK", []any{int64(4)}, []any{int64(-4)}, []any{"a"}, []any{int64(0)}} {
		if got, err := script.ReadLoss(keys, reply); err == nil {
			t.Errorf("reply %v: got %+v, want an error", reply, got)
		}
	}
}

func TestReadRefreshed(t *testing.T) {
	keys := []string{"a", "b", "c"}
	closure := script.Closure{For: 1500 * time.Millisecond, Term: "id"}
	for _, test := range []struct {
		reply any
		want  script.Refreshed
	}{
		{int64(0), script.Refreshed{}},
		{[]any{int64(-2)}, script.Refreshed{Loss: script.Loss{Keys: []string{"b"}, Total: 3}}},
		{[]any{int64(-1), int64(2), int64(3)}, script.Refreshed{Loss: script.Loss{Keys: keys, Taken: 2, Other: "b", Total: 3}}},
		{[]any{int64(0), int64(1500), "id"}, script.Refreshed{Closure: closure}},
		{[]any{int64(0), int64(1500), "id", int64(2)}, script.Refreshed{Closure: closure, Back: []string{"b"}}},
		{[]any{int64(0), int64(1500), "id", int64(1), int64(2), int64(3)}, script.Refreshed{Closure: closure, Back: keys}},
		{[]any{int64(0), int64(1500), "id", int64(-700)}, script.Refreshed{Closure: closure, Again: 700 * time.Millisecond}},
	} {
		got, err := script.ReadRefreshed(keys, test.reply)
		want(t, "error", err, nil)
		want(t, "refreshed", got, test.want)
	}
	for _, reply := range []any{
		nil, int64(1), "OK", []any{int64(4)}, []any{int64(0)}, []any{int64(0), int64(1500)}, []any{"a"},
		[]any{int64(0), int64(1500), "id", int64(4)}, []any{int64(0), int64(1500), "id", int64(0)},
		[]any{int64(0), int64(1500), "id", "a"}, []any{int64(0), int64(1500), "id", int64(-1), int64(2)},
		[]any{int64(0), int64(1500), "id", int64(2), int64(-1)},
		[]any{int64(0), "soon", "id"}, []any{int64(0), int64(1500), int64(7)}, []any{int64(0), int64(0), "id"},
	} {
		if got, err := script.ReadRefreshed(keys, reply); err == nil {
			t.Errorf("reply %v: got %+v, want an error", reply, got)
		}
	}
}

func TestReadClosure(t *testing.T) {
	for _, test := range []struct {
		reply any
		want  script.Closure
	}{
		{[]any{int64(-2), int64(1500), "id"}, script.Closure{For: 1500 * time.Millisecond, Term: "id"}},
		{[]any{"T", int64(1500), int64(0), int64(0)}, script.Closure{}},
		{[]any{nil, int64(-2), int64(0), int64(0)}, script.Closure{}},
		{[]any{int64(-2), int64(1500)}, script.Closure{}},
		{[]any{int64(-2), int64(0), "id"}, script.Closure{}},
		{[]any{int64(-2), int64(1500), int64(7)}, script.Closure{}},
		{int64(-2), script.Closure{}},
		{nil, script.Closure{}},
	} {
		got := script.ReadClosure(test.reply)
		want(t, "closure", got, test.want)
		want(t, "over", got.IsOver(), test.want.For == 0)
	}
}

func TestGuard(t *testing.T) {
	for _, test := range []struct {
		guard script.Guard
		set   bool
		grace time.Duration
	}{
		{script.Guard{}, false, 0},
		{script.Guard{MaxTTL: time.Minute}, true, time.Minute},
		{script.Guard{MaxTTL: time.Minute, Deposed: 3 * time.Second}, true, 63 * time.Second},
	} {
		want(t, "set", test.guard.IsSet(), test.set)
		want(t, "grace", test.guard.Grace(), test.grace)
		want(t, "guard of the scripts", script.New(script.Sources{}, test.guard).Guard, test.guard)
	}
}

// Only under a guard, a call says what a script needs for that. What ends KEYS and ARGV is up to package transport.
func TestGuardedCalls(t *testing.T) {
	keys := script.Box([]string{"a", "b"})
	guarded := script.New(script.Sources{}, script.Guard{MaxTTL: time.Hour})
	for _, test := range []struct {
		scripts      *script.Scripts
		refresh      []any
		inspect      []any
		inspectLines []any
	}{
		{scripts, []any{int64(60000), "new", "1"}, []any{"2 1=1 2=1", "0", "T"}, []any{"2 1=1 2=1"}},
		{guarded, []any{int64(60000), "new", "1", "kept"}, []any{"2 1=1 2=1", "1", "T"}, []any{"2 1=1 2=1"}},
	} {
		want(t, "refresh", test.scripts.Refresh("T", keys, time.Minute, "new", "kept", true).Args, test.refresh)
		want(t, "inspect for Attach", test.scripts.InspectOpen(keys.Names, "T").Args, test.inspect)
		want(t, "inspect", test.scripts.Inspect(keys.Names, &script.Glance{}).Args, test.inspectLines)
	}
}

func TestReadOwned(t *testing.T) {
	keys := []string{"a", "b", "c"}
	mine := script.Held{Token: "T", TTL: time.Minute}
	shorter, endless := mine, mine
	shorter.TTL, endless.TTL = time.Second, -1
	for _, test := range []struct {
		held []script.Held
		loss script.Loss
		ttl  time.Duration
	}{
		{[]script.Held{mine, shorter, mine}, script.Loss{Total: 3}, time.Second},
		{[]script.Held{mine, endless, mine}, script.Loss{Total: 3}, 0},
		{
			[]script.Held{{Gone: true}, mine, {Token: "T2", TTL: time.Hour}},
			script.Loss{Keys: []string{"a", "c"}, Taken: 1, Other: "c", Total: 3}, time.Minute,
		},
		{[]script.Held{{Gone: true}, {Gone: true}, {Gone: true}}, script.Loss{Keys: keys, Total: 3}, math.MaxInt64},
	} {
		loss, ttl := script.ReadOwned(keys, test.held, "T")
		want(t, "loss", loss, test.loss)
		want(t, "ttl", ttl, test.ttl)
	}
}

func TestReadHeld(t *testing.T) {
	keys := []string{"a", "b", "c", "d"}
	held, err := script.ReadHeld(keys, []any{
		"T meta data", int64(1500), int64(2), int64(1_700_000_000_000_000),
		[]any{"box.1/7 1 60000 0 T2 m", int64(1_700_000_000_000_000), int64(1), int64(0)}, "w5:other+",
		"T", int64(-1), int64(0), int64(0), []any{}, "",
		nil, int64(-2), int64(0), int64(0), []any{}, "",
		"", int64(0), int64(0), int64(0), []any{}, "",
	})
	want(t, "error", err, nil)
	want(t, "held", held, []script.Held{
		{
			Token: "T", Metadata: "meta data", TTL: 1500 * time.Millisecond, Waiters: 2, Since: time.UnixMicro(1_700_000_000_000_000),
			Line: []script.Waiter{{
				Names: script.Names{Wants: []string{"a"}}, ID: "box.1/7", Token: "T2", Metadata: "m", Process: "box",
				Ticket: 1_700_000_000_000_000, Late: true,
			}},
			Waits: []string{"other"},
		},
		{Token: "T", TTL: -1},
		{Gone: true},
		{TTL: time.Millisecond}, // 0 would say that nobody holds the key
	})
	if _, err := script.ReadHeld(keys, []any{"T"}); err == nil {
		t.Error("a short reply is no error")
	}
}

func TestReadBlocker(t *testing.T) {
	keys := []string{"a", "b"}
	for _, test := range []struct {
		reply any
		want  script.Blocker
	}{
		{[]any{int64(2), "T who", int64(900), int64(3), int64(2), "w1:cw1:d"},
			script.Blocker{Key: "b", Token: "T", Metadata: "who", TTL: 900 * time.Millisecond, Ahead: 3, Holders: 2, Waits: []string{"c", "d"}}},
		{[]any{int64(1), "", int64(0), int64(1), int64(0), ""}, script.Blocker{Key: "a", Ahead: 1}},
		{[]any{int64(1), "", int64(-1), int64(0), int64(0), ""}, script.Blocker{Key: "a", TTL: -1}},
		{[]any{int64(0), "", int64(0), int64(0), int64(0), ""}, script.Blocker{}},
		{int64(0), script.Blocker{}},
	} {
		want(t, "blocker", script.ReadBlocker(keys, test.reply), test.want)
	}
}

func TestReadMessage(t *testing.T) {
	for words, message := range map[string]script.Message{
		"":                    {Kind: script.Turn},
		"after 20":            {Kind: script.Taken, After: 21 * time.Millisecond},
		"marked 17000000 1 3": {Kind: script.Marked, At: 17000000, Lines: []int{0, 2}},
		"marked soon":         {Kind: script.Turn},
		"granted 17000000 5":  {Kind: script.HandedOver, At: 17000000, Fence: 5},
		"after soon":          {Kind: script.Turn},
		"granted 17":          {Kind: script.Turn},
		"something new":       {Kind: script.Turn},
	} {
		want(t, words, script.ReadMessage(words), message)
	}
}

func TestReadBeaten(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for _, test := range []struct {
		reply any
		want  script.Beaten
	}{
		{
			[]any{int64(1e15), int64(1), int64(-1), []any{}, []any{}},
			script.Beaten{Served: 1e15, Listeners: 1, Silent: -time.Millisecond},
		},
		{
			[]any{int64(1e15), int64(-1), int64(0), []any{int64(1), int64(3)}, []any{"7", int64(2), int64(250), "9", int64(0), int64(0)}},
			script.Beaten{
				Served: 1e15, Listeners: -1, Missing: []string{"a", "c"},
				Firsts: []script.First{{Number: "7", Lines: 2, After: 250 * time.Millisecond}, {Number: "9"}},
			},
		},
	} {
		got, err := script.ReadBeaten(keys, test.reply)
		want(t, "error", err, nil)
		want(t, "beaten", got, test.want)
	}
	for _, reply := range []any{
		nil, int64(1), "OK", []any{}, []any{int64(1e15), int64(1), int64(-1), []any{}},
		[]any{int64(1e15), int64(1), int64(-1), []any{int64(4)}, []any{}}, []any{int64(1e15), int64(1), int64(-1), []any{"a"}, []any{}},
	} {
		if got, err := script.ReadBeaten(keys, reply); err == nil {
			t.Errorf("reply %v: got %+v, want an error", reply, got)
		}
	}
}

// What a waiter writes into a line, Line reads again.
func TestEntry(t *testing.T) {
	const now, ticket = 1_700_000_000_000, 1_700_000_000_000_000 // ms and µs
	long := strings.Repeat("x", 2000)
	many := make([]string, 20)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	outer := script.Holding{Token: "outer", Keys: []string{"an outer", "9:k"}}
	for _, test := range []struct {
		wants []string
		o     script.Obtain
		holds []script.Holding
		names script.Names
	}{
		{[]string{"a"}, script.Obtain{}, nil, script.Names{Wants: []string{"a"}}},
		{[]string{"a", "b"}, script.Obtain{Metadata: "two words", FenceKey: "fence key"}, nil, script.Names{Wants: []string{"a", "b"}}},
		{[]string{"a"}, script.Obtain{Metadata: long, Custom: true}, nil, script.Names{Wants: []string{"a"}}},
		{
			[]string{"a", " w3:b"}, script.Obtain{FenceKey: "9:"}, []script.Holding{outer, outer},
			script.Names{Wants: []string{"a", " w3:b"}, Holds: []script.Holding{outer, outer}},
		},
		{many, script.Obtain{}, nil, script.Names{}},
		{
			many, script.Obtain{Metadata: "m"}, []script.Holding{{Token: "T2", Keys: many}},
			script.Names{Holds: []script.Holding{{Token: "T2", Keys: many[:16], More: true}}},
		},
		{
			[]string{"a"}, script.Obtain{}, []script.Holding{{Token: "T2", Keys: []string{"k", long}}, {Token: "T3", More: true}, {Token: long}},
			script.Names{
				Wants: []string{"a"}, Holds: []script.Holding{{Token: "T2", Keys: []string{"k"}, More: true}, {Token: "T3", More: true}}, More: true,
			},
		},
		{[]string{"a", long}, script.Obtain{}, nil, script.Names{}},
		{many[:4], script.Obtain{}, nil, script.Names{Wants: many[:4]}},
		{many[:5], script.Obtain{}, nil, script.Names{}},
		{many[:5], script.Obtain{}, []script.Holding{outer}, script.Names{Wants: many[:5], Holds: []script.Holding{outer}}},
	} {
		o := test.o
		o.Keys, o.Token, o.TTL = script.Box(test.wants), "T", time.Minute
		o.Names = script.WriteNames(test.wants, test.holds)
		if len(o.Names) > 1024 {
			t.Errorf("%d bytes of names", len(o.Names))
		}
		packed := -float64((now+3000)*4096 + 2*3)
		waiters, err := script.ReadWaiters("a", []any{
			int64(now), "~inbox.1", formatted(packed), "inbox.1/7" + o.Entry(), formatted(ticket),
		})
		want(t, "error", err, nil)
		want(t, "waiters", waiters, []script.Waiter{{
			Names: test.names, ID: "inbox.1/7", Token: "T", Metadata: o.Metadata[:min(len(o.Metadata), 1024)], Process: "inbox",
			Ticket: ticket, Limit: 1,
		}})
	}
	want(t, "the names of a waiter for one key that holds nothing", script.WriteNames([]string{"a"}, nil), "")
}

func formatted(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

func TestKeys(t *testing.T) {
	keys := script.Box([]string{"a", "{b}c", "d}"})
	c := scripts.Release("T", keys)
	want(t, "keys", c.Keys, []any{"a", "{b}c", "d}"})
	want(t, "lines", c.Spare, []any{"a{a}:redislock:line", "{b}c:redislock:line"})
	want(t, "without lines", len(scripts.Release("T", keys.WithoutLines()).Spare), 0)
	only := scripts.Release("T", keys.OnlyLines())
	want(t, "only lines", []any{len(only.Keys), only.Spare}, []any{0, c.Spare})
	want(t, "unique", script.Unique([]string{"b", "a", "b"}), []string{"b", "a"})
	script.Limit(c, keys.Only([]string{"a", "a"}))
	want(t, "limited", []any{c.Keys, c.Args}, []any{[]any{"a"}, []any{1}})
}

func TestTooMany(t *testing.T) {
	if err := script.TooMany(1_000_000); err != nil {
		t.Error(err)
	}
	if err := script.TooMany(1_000_001); !errors.Is(err, fault.ErrInvalid) {
		t.Errorf("a million and one keys: %v", err)
	}
}

// A call may be made from keys that other calls share: none may write into their array.
func TestKeysAreShared(t *testing.T) {
	keys := script.Box([]string{"a", "b"})
	c := new(transport.Call)
	scripts.Obtain(c, &script.Obtain{Keys: keys, Token: "T", TTL: time.Minute, FenceKey: "fence"})
	script.AndFence(scripts.Release("T", keys), "other fence", "")
	scripts.Fence("T", keys, "third fence", 0)
	want(t, "keys", c.Keys, []any{"a", "b", "fence"})
	want(t, "lines", c.Spare, scripts.Release("T", keys).Spare)
}

func TestAndWait(t *testing.T) {
	o := script.Obtain{Keys: script.Box([]string{"a"}), Token: "T", TTL: time.Minute}
	c := new(transport.Call)
	scripts.Obtain(c, &o)
	want(t, "simple", c.Simple, true)
	want(t, "arguments", c.Args, []any{"", int64(60000), 1, "0"})
	script.AndWait(c, "entry", 0, script.Mark{Life: 3 * time.Second, Open: true}, 77)
	want(t, "simple", c.Simple, true)
	want(t, "arguments", c.Args, []any{"", int64(60000), 1, "0", "0", "entry", int64(0), 1, 3, int64(77)})
	want(t, "a refusal finishes it", c.Accept(int64(0)), false)
	want(t, "a closed guard finishes it", c.Accept([]any{int64(-2), int64(1500), "id"}), false)
	want(t, "a grant finishes it", c.Accept(int64(1)), true)
	scripts.Obtain(c, &o)
	script.AndWait(c, "entry", 5, script.Mark{Life: 60 * time.Second, Left: true}, 77)
	want(t, "simple", c.Simple, false) // the joint script knows no tickets
	want(t, "arguments", c.Args, []any{"", int64(60000), 1, "0", "0", "entry", int64(5), 2, 60})
	for _, o := range []script.Obtain{{Keys: o.Keys, Token: "T", Custom: true}, {Keys: o.Keys, Token: "T", Mends: true}} {
		scripts.Obtain(c, &o)
		want(t, "simple", c.Simple, false) // the joint script knows no such keys
		want(t, "arguments", c.Args, []any{"", int64(0), 1, "0", "1"})
		script.AndWait(c, "entry", 0, script.Mark{Life: 3 * time.Second, Open: true}, 77)
		want(t, "arguments", c.Args, []any{"", int64(0), 1, "0", "1", "entry", int64(0), 1, 3, int64(77)})
	}
}
