package redislocktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
	"github.com/redislock/redislock/internal/testing/faultproxy"
)

// listening is a subscription of a test.
type listening struct {
	opened   chan struct{}
	messages chan string
	ended    chan error
	stop     context.CancelFunc
}

func listen(t *testing.T, c adapter.Listener, channel string) *listening {
	ctx, stop := context.WithCancel(t.Context())
	l := &listening{opened: make(chan struct{}, 10), messages: make(chan string, 1000), ended: make(chan error, 1), stop: stop}
	go func() { // ends with ctx
		l.ended <- c.Listen(ctx, channel, func() { l.opened <- struct{}{} }, func(payload string) { l.messages <- payload })
	}()
	select {
	case <-l.opened:
	case err := <-l.ended:
		t.Fatalf("Listen has returned %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("no subscription within 10 s")
	}
	return l
}

func (l *listening) end(t *testing.T) {
	t.Helper()
	l.stop()
	select {
	case err := <-l.ended:
		if err == nil {
			t.Error("Listen has returned no error")
		}
	case <-time.After(5 * time.Second):
		t.Error("Listen does not return when ctx ends")
	}
}

func (c connTest) messages(t *testing.T) {
	conn := c.dial(t, c.server)
	listener, is := conn.(adapter.Listener)
	if !is {
		t.Skip("it is no adapter.Listener: waiters in line try every few seconds")
	}
	channel := newKey()
	l := listen(t, listener, channel)
	const publish = `return redis.call('PUBLISH', ARGV[1], ARGV[2])`
	key := []string{newKey()} // messages of several nodes have no order
	for i := range 100 {
		must(t, conn, publish, key, channel, fmt.Sprint("message ", i))
	}
	for i := range 100 {
		select {
		case got := <-l.messages:
			if want := fmt.Sprint("message ", i); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("message %d has not arrived", i)
		}
	}
	l.end(t)
	other := listen(t, listener, channel)
	other.end(t)
}

func (c connTest) locks(t *testing.T) {
	client := redislock.Adapt(c.dial(t, c.server))
	locks, key := redislock.New(client), newKey()
	defer func() { _ = locks.Close() }()
	lock, err := locks.ObtainMulti(t.Context(), []string{key, key + "b"}, time.Minute, &redislock.Options{Metadata: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Obtain(t.Context(), key, time.Minute, nil); !errors.Is(err, redislock.ErrNotObtained) {
		t.Errorf("the second holder: %v", err)
	}
	granted := make(chan error, 1)
	began := time.Now()
	go func() { // ends with the lock
		waiter, err := redislock.New(client).Obtain(t.Context(), key, time.Second, &redislock.Options{Queue: true})
		if err == nil {
			err = waiter.Release(context.Background())
		}
		granted <- err
	}()
	for time.Since(began) < 5*time.Second {
		if line, err := locks.Line(t.Context(), key); err != nil || len(line) == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := lock.Refresh(t.Context(), time.Hour, nil); err != nil {
		t.Error(err)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-granted:
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the waiter does not get the lock")
	}
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			for range 10 {
				lock, err := locks.Obtain(t.Context(), fmt.Sprint(key, i), time.Minute, nil)
				if err == nil {
					err = lock.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

func (c connTest) slots(t *testing.T) {
	conn := c.dial(t, c.server)
	router, is := conn.(adapter.Router)
	if !is {
		t.Skip("it is no adapter.Router: calls for a node do not share round trips")
	}
	ranges, err := router.Slots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	covered := map[int]string{}
	for _, some := range ranges {
		for slot := some.First; slot <= some.Last; slot++ {
			if before, twice := covered[slot]; twice {
				t.Fatalf("slot %d is at %s and at %s", slot, before, some.Address)
			}
			covered[slot] = some.Address
		}
	}
	if len(covered) != 16384 {
		t.Errorf("%d slots have a node, of 16384", len(covered))
	}
	var all []*adapter.Script
	for range 300 { // of all nodes
		all = append(all, script(`return KEYS[1]`, []string{newKey()}))
	}
	conn.Run(t.Context(), all)
	for _, s := range all {
		if s.Err != nil || s.Reply != s.Keys[0] {
			t.Fatalf("got %v, %v", s.Reply, s.Err)
		}
	}
}

// proxied returns a proxy before the server, and a Conn through it that has connected.
func (c connTest) proxied(t *testing.T) (*faultproxy.Proxy, adapter.Conn) {
	proxy, err := faultproxy.New(c.server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	conn := c.dial(t, proxy.Addr())
	must(t, conn, `return 1`, []string{newKey()})
	return proxy, conn
}

func (c connTest) roundTrip(t *testing.T) {
	proxy, conn := c.proxied(t)
	const latency = 20 * time.Millisecond
	proxy.SetLatency(func() time.Duration { return latency })
	var all []*adapter.Script
	for range 100 {
		all = append(all, script(`return 1`, []string{newKey()}))
	}
	began := time.Now()
	conn.Run(context.Background(), all)
	if took := time.Since(began); took > 40*latency {
		t.Errorf("100 scripts take %v where a round trip takes %v: they go one by one", took, 2*latency)
	}
}

func (c connTest) breaks(t *testing.T) {
	proxy, conn := c.proxied(t)
	key := []string{newKey()}
	count := script(`redis.call('INCR', KEYS[1]) redis.call('EXPIRE', KEYS[1], 60) return 1`, key)
	proxy.Add(faultproxy.Rule{Match: running, Action: faultproxy.CutAfterReplyBytes(0), Times: 1})
	began := time.Now()
	reply, err := run(conn, count)
	if _, answered := errors.AsType[adapter.ReplyError](err); err == nil || answered || errors.Is(err, adapter.ErrNotSent) {
		t.Errorf("the reply was lost: got %v, %v", reply, err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v to notice that the connection was closed", took)
	}
	time.Sleep(time.Second)
	if got := must(t, conn, `return redis.call('GET', KEYS[1])`, key); got != "1" {
		t.Errorf("the script was executed %v times: an adapter never sends again", got)
	}
}

// running matches the arguments of a request that runs a script.
func running(args []string) bool {
	return len(args) > 0 && strings.HasPrefix(strings.ToUpper(args[0]), "EVAL")
}

func (c connTest) refused(t *testing.T) {
	proxy, conn := c.proxied(t)
	proxy.RefuseConnections(true)
	proxy.CutAll()
	defer proxy.RefuseConnections(false)
	time.Sleep(100 * time.Millisecond)
	_, err := run(conn, script(`return 1`, []string{newKey()}))
	_, answered := errors.AsType[adapter.ReplyError](err)
	switch {
	case err == nil || answered:
		t.Errorf("without a server: %v", err)
	case !errors.Is(err, adapter.ErrNotSent):
		t.Logf("%v (%[1]T) does not wrap adapter.ErrNotSent, so each call that could not connect leaves doubt", err)
	}
	proxy.RefuseConnections(false)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err = run(conn, script(`return 1`, []string{newKey()})); err == nil {
			return
		}
		if time.Since(began) > 15*time.Second {
			t.Fatalf("15 s after the server is back: %v", err)
		}
	}
}

func (c connTest) hangs(t *testing.T) {
	proxy, conn := c.proxied(t)
	proxy.Hang()
	began := time.Now()
	done := make(chan error, 1)
	go func() { // ends when the client gives up, or the server is back
		_, err := run(conn, script(`return 1`, []string{newKey()}))
		done <- err
	}()
	select {
	case err := <-done:
		if _, answered := errors.AsType[adapter.ReplyError](err); err == nil || answered {
			t.Errorf("of a server that hangs: %v", err)
		}
		t.Logf("Run returned after %v", time.Since(began))
	case <-time.After(30 * time.Second):
		t.Error("a server hangs, and Run has not returned after 30 s: set a timeout for replies")
	}
	proxy.Resume()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err := run(conn, script(`return 1`, []string{newKey()})); err == nil {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("the server is back for 30 s, and no script succeeds")
		}
	}
}

func (c connTest) deaf(t *testing.T) {
	proxy, conn := c.proxied(t)
	listener, is := conn.(adapter.Listener)
	if !is {
		t.Skip("it is no adapter.Listener")
	}
	l := listen(t, listener, newKey())
	proxy.RefuseConnections(true)
	proxy.CutAll()
	select {
	case err := <-l.ended:
		if err == nil {
			t.Error("Listen has returned no error")
		}
	case <-time.After(10 * time.Second):
		t.Error("Listen does not return when the subscription breaks")
	}
	proxy.RefuseConnections(false)
}
