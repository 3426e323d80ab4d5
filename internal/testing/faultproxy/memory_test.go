package faultproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/testing/memnet"
)

// inMemory runs test in a bubble, with a proxy before a miniredis. Neither uses sockets.
func inMemory(t *testing.T, test func(t *testing.T, p *Proxy, server *miniredis.Miniredis)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		if first, err := server.Dial(); err == nil { // starts it without a socket
			_ = first.Close()
		}
		p := NewInMemory(func(context.Context, string, string) (net.Conn, error) {
			near, far := memnet.Pipe()
			server.Server().ServeConn(far)
			return near, nil
		})
		t.Cleanup(server.Close)
		t.Cleanup(func() { _ = p.Close() })
		test(t, p, server)
	})
}

func dialAs(t *testing.T, p *Proxy, client int) *wire {
	t.Helper()
	conn, err := p.Dialer(client)(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{t, conn, bufio.NewReader(conn)}
}

// wantAfter expects replies exactly d after since.
func (w *wire) wantAfter(since time.Time, d time.Duration, replies ...string) {
	w.t.Helper()
	_ = w.conn.SetReadDeadline(time.Time{})
	got := make([]byte, len(strings.Join(replies, "")))
	if _, err := w.r.Read(got); err != nil {
		w.t.Fatal(err)
	}
	if string(got) != strings.Join(replies, "") || time.Since(since) != d {
		w.t.Errorf("%q came after %v, want %q after %v", got, time.Since(since), replies, d)
	}
}

func TestRulesTellClientsApart(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, _ *miniredis.Miniredis) {
		fault := p.Add(Rule{Client: 2, Match: Command("ping"), Action: RefuseReply("ERR not you")})
		for client, want := range []string{"+PONG\r\n", "+PONG\r\n", "-ERR not you\r\n", "+PONG\r\n"} {
			w := dialAs(t, p, client)
			w.send("PING")
			w.want(want)
		}
		if fault.Count() != 1 {
			t.Errorf("the rule has applied to %d requests", fault.Count())
		}
		p.RemoveAll()
		w := dialAs(t, p, 2)
		w.send("PING")
		w.want("+PONG\r\n")
	})
}

func TestCutClient(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, server *miniredis.Miniredis) {
		p.Add(Rule{Match: Arg("now"), Action: CutClient()})
		p.Add(Rule{Match: Arg("later"), Action: CutClient().And(DelayRequest(time.Hour))})
		began := time.Now()
		for _, key := range []string{"now", "later"} {
			w := dialAs(t, p, 0)
			w.send("SET " + key + " v")
			w.wantEnd("")
		}
		synctest.Wait()
		if time.Since(began) != 0 || !server.Exists("now") || server.Exists("later") {
			t.Errorf("after %v, there are %q", time.Since(began), server.Keys())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if !server.Exists("later") {
			t.Error("the delayed request was not executed")
		}
	})
}

func TestRepeatRequestAfter(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, server *miniredis.Miniredis) {
		p.Add(Rule{Match: Command("incr"), Action: RepeatRequestAfter(time.Hour)})
		w := dialAs(t, p, 0)
		w.send("INCR a", "PING")
		w.want(":1\r\n", "+PONG\r\n")
		w.conn.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, _ := server.Get("a"); got != "2" {
			t.Errorf("a is %s", got)
		}
		w = dialAs(t, p, 0)
		w.send("INCR b")
		w.want(":1\r\n")
		if err := p.Close(); err != nil { // does not wait for the hour to be over
			t.Error(err)
		}
		if time.Sleep(2 * time.Hour); !server.Exists("b") {
			t.Error("b is gone")
		}
		if got, _ := server.Get("b"); got != "1" {
			t.Errorf("b is %s", got)
		}
	})
}

func TestDelaysAddUp(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, _ *miniredis.Miniredis) {
		p.Add(Rule{Match: Command("ping"), Action: DelayRequest(time.Second).And(DelayReply(time.Minute))})
		w, began := dialAs(t, p, 0), time.Now()
		w.send("PING")
		w.wantAfter(began, time.Minute+time.Second, "+PONG\r\n")
		p.RemoveAll()
		p.Add(Rule{Action: DelayRequestUntil(began.Add(time.Hour)).And(DelayRequest(time.Second))})
		w.send("PING")
		w.wantAfter(began, time.Hour, "+PONG\r\n")
		w.send("PING")
		w.wantAfter(began, time.Hour+time.Second, "+PONG\r\n")
	})
	defer func() {
		if recover() == nil {
			t.Error("two faults at a time did not panic")
		}
	}()
	SwallowReply().And(BlackHole())
}

func TestLatency(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, _ *miniredis.Miniredis) {
		p.SetLatency(func() time.Duration { return time.Second })
		p.Add(Rule{Match: Arg("k"), Action: DelayReply(time.Minute)})
		w, began := dialAs(t, p, 0), time.Now()
		w.send("PING")
		w.wantAfter(began, 2*time.Second, "+PONG\r\n")
		began = time.Now()
		w.send("GET k")
		w.wantAfter(began, time.Minute+time.Second, "$-1\r\n")
		p.SetLatency(nil)
		began = time.Now()
		w.send("PING")
		w.wantAfter(began, 0, "+PONG\r\n")
	})
}

func TestDecide(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, server *miniredis.Miniredis) {
		asked := make(chan Message, 10)
		choose := func(action Action) {
			p.Decide(func(m Message) Action {
				asked <- m
				return action
			})
		}
		choose(DelayRequest(time.Second).And(DelayReply(time.Minute))) // each message heeds its part
		p.Add(Rule{Match: Command("ping")})
		w, began := dialAs(t, p, 3), time.Now()
		w.send("PING", "GET k")
		w.wantAfter(began, 0, "+PONG\r\n")
		w.wantAfter(began, time.Minute+time.Second, "$-1\r\n")
		if m := <-asked; m.Reply || m.Client != 3 || m.Args[0] != "GET" {
			t.Errorf("asked about %+v", m)
		}
		if m := <-asked; !m.Reply || m.Client != 3 || m.Args[0] != "GET" {
			t.Errorf("asked about %+v", m)
		}

		choose(CutAfterReplyBytes(0))
		w.send("SET k v")
		w.wantEnd("")
		if !server.Exists("k") {
			t.Error("the request was not executed")
		}
		choose(SwallowReply())
		w = dialAs(t, p, 3)
		w.send("INCR n")
		w.wantSilence()
		choose(Action{})
		w.send("INCR n")
		w.wantSilence()
		if got, _ := server.Get("n"); got != "2" {
			t.Errorf("n is %s", got)
		}

		p.Decide(nil)
		w = dialAs(t, p, 3)
		w.send("SUBSCRIBE c")
		w.want("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
		for len(asked) > 0 {
			<-asked
		}
		choose(DelayReply(time.Second))
		began = time.Now()
		server.Publish("c", "hi")
		w.wantAfter(began, time.Second, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n")
		if m := <-asked; m.Args != nil || !m.Reply || len(asked) > 0 {
			t.Errorf("asked about %+v", m)
		}
	})
}

func TestRewriteRequests(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, server *miniredis.Miniredis) {
		p.RewriteRequests(func(m Message, raw []byte) {
			if m.Client == 1 && Command("set")(m.Args) {
				copy(raw, bytes.Replace(raw, []byte("old"), []byte("new"), 1))
			}
		})
		for _, client := range []int{0, 1} {
			w := dialAs(t, p, client)
			w.send("SET old v")
			w.want("+OK\r\n")
		}
		if keys := server.Keys(); len(keys) != 2 {
			t.Errorf("the keys are %q", keys)
		}
	})
}

func TestHang(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, server *miniredis.Miniredis) {
		p.Add(Rule{Match: Command("get"), Action: DelayReply(time.Second)})
		w, began := dialAs(t, p, 0), time.Now()
		w.send("GET k")
		synctest.Wait()
		p.Hang()
		p.Hang()
		late := dialAs(t, p, 0)
		late.send("SET k v")
		late.conn.Close()
		time.AfterFunc(time.Hour, p.Resume)
		w.wantAfter(began, time.Hour, "$-1\r\n") // the reply was on its way
		synctest.Wait()
		if !server.Exists("k") {
			t.Error("what arrived meanwhile was not executed")
		}
		p.Hang()
		w.send("GET k") // Close does not wait for it
	})
}

func TestPassGreetings(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, _ *miniredis.Miniredis) {
		p.PassGreetings()
		p.SetLatency(func() time.Duration { return time.Second })
		refused := p.Add(Rule{Match: Command("hello", "select"), Action: RefuseReply("ERR no")})
		w, began := dialAs(t, p, 0), time.Now()
		p.Hang()
		w.send("SELECT 1")
		w.wantAfter(began, 0, "+OK\r\n")
		p.Resume()
		w.send("PING", "SELECT 2") // which is part of no greeting
		w.wantAfter(began, 2*time.Second, "+PONG\r\n", "-ERR no\r\n")
		if refused.Count() != 1 {
			t.Errorf("the rule has applied to %d requests", refused.Count())
		}
	})
}

func TestDialerIsRefused(t *testing.T) {
	inMemory(t, func(t *testing.T, p *Proxy, _ *miniredis.Miniredis) {
		dial := p.Dialer(1)
		p.RefuseConnections(true)
		if _, err := dial(t.Context(), "", ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
		p.RefuseConnections(false)
		if _, err := dial(t.Context(), "", ""); err != nil {
			t.Error(err)
		}
		_ = p.Close()
		if _, err := dial(t.Context(), "", ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	})
}
