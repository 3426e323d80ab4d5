package redislocktest

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock/adapter"
)

// TestConn tests whether an adapter does what [adapter.Conn] demands. server is the address of a Redis server, or of a node
// of a Cluster, that runs on this machine and has no password. dial connects to an address, and ends the client with its t,
// for example by t.Cleanup.
//
//	func TestAdapter(t *testing.T) {
//		redislocktest.TestConn(t, "localhost:6379", func(t *testing.T, address string) adapter.Conn { … })
//	}
//
// On a single server, TestConn breaks the connections as well: it puts a proxy between the client and the server. It uses
// keys of its own, which begin with "redislocktest:" and expire. It takes up to a minute, most of it for a server that does
// not answer.
func TestConn(t *testing.T, server string, dial func(t *testing.T, address string) adapter.Conn) {
	t.Helper()
	c := connTest{server: server, dial: dial}
	slots := dial(t, server).About().Reach == adapter.Slots
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"comparison", c.comparison},
		{"replies", c.replies},
		{"keys and arguments", c.arguments},
		{"error replies", c.errors},
		{"many scripts in one Run", c.order},
		{"many goroutines", c.goroutines},
		{"Sent", c.sent},
		{"messages", c.messages},
		{"locks", c.locks},
	} {
		t.Run(test.name, test.run)
	}
	if slots {
		t.Run("slots", c.slots)
		return
	}
	t.Run("one round trip", c.roundTrip)
	t.Run("a connection that breaks", c.breaks)
	t.Run("no connection", c.refused)
	t.Run("a server that hangs", c.hangs)
	t.Run("a subscription that breaks", c.deaf)
}

// connTest is one TestConn.
type connTest struct {
	server string
	dial   func(t *testing.T, address string) adapter.Conn
}

// script returns a script for Run. All its keys should have one hash tag.
func script(source string, keys []string, args ...string) *adapter.Script {
	sum := sha1.Sum([]byte(source))
	return &adapter.Script{
		Source: source, SHA1: hex.EncodeToString(sum[:]), Whole: true, Keys: keys, Args: args, Sent: func() error { return nil },
	}
}

// newKey returns a key that nobody else has.
func newKey() string { return "redislocktest:{" + rand.Text() + "}" }

// run runs one script.
func run(c adapter.Conn, s *adapter.Script) (any, error) {
	c.Run(context.Background(), []*adapter.Script{s})
	return s.Reply, s.Err
}

// must runs a script, whose reply is no error.
func must(t *testing.T, c adapter.Conn, source string, keys []string, args ...string) any {
	t.Helper()
	reply, err := run(c, script(source, keys, args...))
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return reply
}

func (c connTest) comparison(t *testing.T) {
	conn := c.dial(t, c.server)
	if !reflect.ValueOf(conn).Comparable() {
		t.Errorf("a %T cannot be compared: make it a pointer, or a struct of one", conn)
	}
}

func (c connTest) replies(t *testing.T) {
	conn := c.dial(t, c.server)
	binary := string([]byte{0, 255, 13, 10, 128})
	for source, want := range map[string]any{
		`return 7`:                               int64(7),
		`return -1`:                              int64(-1),
		`return 9007199254740991`:                int64(9007199254740991),
		`return 'text'`:                          "text",
		`return ''`:                              "",
		`return ARGV[1]`:                         binary,
		`return nil`:                             nil,
		`return false`:                           nil,
		`return redis.status_reply('fine')`:      "fine",
		`return {}`:                              []any{},
		`return {1, 'text', {2, {}}, false, ''}`: []any{int64(1), "text", []any{int64(2), []any{}}, nil, ""},
	} {
		if got := must(t, conn, source, []string{newKey()}, binary); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v", source, got, want)
		}
	}
}

func (c connTest) arguments(t *testing.T) {
	conn := c.dial(t, c.server)
	key := newKey()
	keys, args := []string{key, key + " b", key + "\r\n"}, []string{"", "a b", "\x00\r\n$5\r\n", strings.Repeat("x", 100_000)}
	want := []any{}
	for _, text := range append(append([]string{}, keys...), args...) {
		want = append(want, text)
	}
	got := must(t, conn, `for i = 1, #ARGV do KEYS[#KEYS + 1] = ARGV[i] end return KEYS`, keys, args...)
	if !reflect.DeepEqual(got, want) {
		t.Error("KEYS or ARGV arrive changed")
	}
	many := make([]string, 5000)
	for i := range many {
		many[i] = key + strconv.Itoa(i)
	}
	if got := must(t, conn, `return #KEYS + #ARGV`, many, many...); got != int64(10_000) {
		t.Errorf("of 10,000 keys and arguments, %v arrive", got)
	}
}

func (c connTest) errors(t *testing.T) {
	conn := c.dial(t, c.server)
	key := []string{newKey()}
	answer := func(s *adapter.Script, begins string) {
		t.Helper()
		reply, err := run(conn, s)
		a, is := errors.AsType[adapter.ReplyError](err)
		if !is || reply != nil || !strings.HasPrefix(a.Error(), begins) {
			t.Errorf("got %v, %T %[2]v, want an adapter.ReplyError that begins with %s", reply, err, begins)
		}
	}
	answer(script(`return redis.error_reply('MINE of my own')`, key), "MINE of my own")
	answer(script(`return redis.error_reply('ERR of no kind')`, key), "ERR of no kind")
	answer(script(`return redis.call('LPUSH', KEYS[1], 1) + redis.call('GET', KEYS[1])`, key), "WRONGTYPE")
	fresh := script(`return '`+rand.Text()+`'`, key)
	fresh.Whole = false
	answer(fresh, "NOSCRIPT")
	fresh.Whole = true
	if _, err := run(conn, fresh); err != nil {
		t.Error(err)
	}
	fresh.Whole = false
	if reply, err := run(conn, fresh); err != nil || len(fmt.Sprint(reply)) != 26 {
		t.Errorf("by its hash: %v, %v", reply, err)
	}
	must(t, conn, `return redis.call('DEL', KEYS[1])`, key)
}

func (c connTest) order(t *testing.T) {
	conn := c.dial(t, c.server)
	key := []string{newKey()}
	var all []*adapter.Script
	for i := range 500 {
		source := `return redis.call('INCR', KEYS[1])`
		if i%100 == 50 {
			source = `return redis.error_reply('NO ' .. redis.call('INCR', KEYS[1]))`
		}
		all = append(all, script(source, key))
	}
	conn.Run(context.Background(), all)
	for i, s := range all {
		want, wantErr := any(int64(i+1)), error(nil)
		if i%100 == 50 {
			want, wantErr = nil, adapter.ReplyError(fmt.Sprint("NO ", i+1))
		}
		if s.Reply != want || s.Err != wantErr {
			t.Fatalf("script %d: got %v, %v, want %v, %v", i+1, s.Reply, s.Err, want, wantErr)
		}
	}
	must(t, conn, `return redis.call('DEL', KEYS[1])`, key)
}

func (c connTest) goroutines(t *testing.T) {
	conn := c.dial(t, c.server)
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			for j := range 50 {
				want := fmt.Sprint(i, " ", j)
				if got, err := run(conn, script(`return ARGV[1]`, []string{newKey()}, want)); err != nil || got != want {
					t.Errorf("got %v, %v, want %s", got, err, want)
					return
				}
			}
		})
	}
	wait.Wait()
}

func (c connTest) sent(t *testing.T) {
	conn := c.dial(t, c.server)
	key := []string{newKey()}
	s := script(`local now = redis.call('TIME') return now[1] * 1000 + math.floor(now[2] / 1000)`, key)
	var at []time.Time
	s.Sent = func() error { at = append(at, time.Now()); return nil }
	switch reply, err := run(conn, s); {
	case err != nil:
		t.Error(err)
	case len(at) != 1:
		t.Errorf("Sent was called %d times", len(at))
	case reply.(int64) < at[0].UnixMilli()-1:
		t.Errorf("Sent was called %d ms after the script was executed", at[0].UnixMilli()-reply.(int64))
	}
	unwanted := errors.New("nobody wants it")
	s = script(`return redis.call('INCR', KEYS[1])`, key)
	s.Sent = func() error { return unwanted }
	if reply, err := run(conn, s); reply != nil || !errors.Is(err, unwanted) {
		t.Errorf("after an error of Sent: got %v, %v", reply, err)
	}
	if got := must(t, conn, `return redis.call('EXISTS', KEYS[1])`, key); got != int64(0) {
		t.Error("the script was executed although Sent has returned an error")
	}
}
