package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"github.com/redis/go-redis/v9"
)

// soon is how long a test listens before it takes silence for silence.
const soon = 50 * time.Millisecond

// newProxy starts a proxy for a miniredis. At its end the test closes both, and
// fails if that leaves a goroutine behind.
func newProxy(t *testing.T) (*Proxy, *miniredis.Miniredis) {
	t.Helper()
	checkLeaks(t)
	server := miniredis.RunT(t)
	return proxyFor(t, server.Addr()), server
}

func proxyFor(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// checkLeaks must come before what starts goroutines, so that it runs last.
func checkLeaks(t *testing.T) {
	before := gleak.Goroutines()
	t.Cleanup(func() {
		gomega.NewWithT(t).Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
	})
}

// A wire is a client that shows what passes over its connection.
type wire struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{t, conn, bufio.NewReader(conn)}
}

func encode(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// send sends requests, each given as words, in one write.
func (w *wire) send(requests ...string) {
	w.t.Helper()
	var all strings.Builder
	for _, request := range requests {
		all.WriteString(encode(strings.Fields(request)...))
	}
	if _, err := io.WriteString(w.conn, all.String()); err != nil {
		w.t.Fatal(err)
	}
}

// want fails the test unless the next replies are these.
func (w *wire) want(replies ...string) {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	for _, want := range replies {
		got, err := readValue(w.r)
		if err != nil || string(got) != want {
			w.t.Fatalf("reply %q, %v, want %q", got, err, want)
		}
	}
}

// wantSilence fails the test if a reply or the end of the connection comes.
func (w *wire) wantSilence() {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(soon))
	var timeout net.Error
	if b, err := w.r.Peek(1); !errors.As(err, &timeout) || !timeout.Timeout() {
		w.t.Fatalf("read %q, %v, want silence", b, err)
	}
}

// wantEnd fails the test unless the connection ends after exactly these bytes.
func (w *wire) wantEnd(last string) {
	w.t.Helper()
	if got := w.end(); got != last {
		w.t.Fatalf("read %q, want %q", got, last)
	}
}

// end returns what comes before the connection ends, by a reset or otherwise.
func (w *wire) end() string {
	w.t.Helper()
	w.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	got, err := io.ReadAll(w.r)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		w.t.Fatal("the connection stays open")
	}
	return string(got)
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !check(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so in time: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestForwards(t *testing.T) {
	p, server := newProxy(t)
	w := dial(t, p)
	w.send("SET a 1", "GET a", "GET none", "RPUSH l x y", "LRANGE l 0 -1")
	w.want("+OK\r\n", "$1\r\n1\r\n", "$-1\r\n", ":2\r\n", "*2\r\n$1\r\nx\r\n$1\r\ny\r\n")

	server.Close()
	w.wantEnd("")
}

func TestForwardsAClient(t *testing.T) {
	p, _ := newProxy(t)
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: protocol})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				key := fmt.Sprint("k", protocol, i)
				for n := range int64(50) {
					if got, err := client.Incr(t.Context(), key).Result(); got != n+1 || err != nil {
						t.Errorf("INCR %s = %d, %v, want %d", key, got, err, n+1)
					}
				}
			})
		}
		wg.Wait()
		client.Close()
	}
}

func TestForwardsPublishedMessages(t *testing.T) {
	p, server := newProxy(t)
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: protocol})
		sub := client.Subscribe(t.Context(), "a", "b")
		for range 2 {
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		server.Publish("b", "hello")
		if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "hello" {
			t.Fatalf("received %v, %v", m, err)
		}
		if err := sub.Ping(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.Receive(t.Context()); err != nil || m.(*redis.Pong).Payload != "x" {
			t.Fatalf("received %v, %v", m, err)
		}
		sub.Close()
		client.Close()
	}
}

func TestRulesChooseRequests(t *testing.T) {
	p, _ := newProxy(t)
	w := dial(t, p)
	first := p.Add(Rule{Match: Command("get"), Times: 2, Action: RefuseReply("ERR first")})
	second := p.Add(Rule{Match: Arg("k"), Action: RefuseReply("ERR second")})

	w.send("GET k", "SET x 1", "GET x", "GET k", "TTL k")
	w.want("-ERR first\r\n", "+OK\r\n", "-ERR first\r\n", "-ERR second\r\n", "-ERR second\r\n")
	second.Remove()
	w.send("GET k")
	w.want("$-1\r\n")

	if first.Count() != 2 || second.Count() != 2 {
		t.Errorf("the rules count %d and %d, want 2 and 2", first.Count(), second.Count())
	}
	if all, gets := p.Requests(nil), p.Requests(Command("get", "mget")); all != 6 || gets != 4 {
		t.Errorf("Requests counts %d, and %d GETs, want 6 and 4", all, gets)
	}
	if all, gets := p.Executed(nil), p.Executed(Command("get")); all != 2 || gets != 1 {
		t.Errorf("Executed counts %d, and %d GETs, want 2 and 1", all, gets)
	}
}

func TestRuleWithoutAnActionObserves(t *testing.T) {
	p, _ := newProxy(t)
	fault := p.Add(Rule{Match: Command("set")})
	select {
	case <-fault.Hit():
		t.Fatal("hit before any request")
	default:
	}
	w := dial(t, p)
	w.send("SET k v")
	<-fault.Hit()
	w.want("+OK\r\n")
}

func TestSwallowReply(t *testing.T) {
	p, server := newProxy(t)
	w := dial(t, p)
	p.Add(Rule{Match: Command("set"), Times: 1, Action: SwallowReply()})
	w.send("GET k", "SET k v", "INCR n")
	w.want("$-1\r\n")
	w.wantSilence()
	eventually(t, "the later request is executed too", func() bool { return server.Exists("n") })
	if got, _ := server.Get("k"); got != "v" {
		t.Errorf("k = %q, want it set", got)
	}

	server.Close()
	w.wantSilence()
}

func TestDelayReply(t *testing.T) {
	p, server := newProxy(t)
	w := dial(t, p)
	const delay = 100 * time.Millisecond
	p.Add(Rule{Match: Command("set"), Action: DelayReply(delay)})
	began := time.Now()
	w.send("SET k v", "SET k w", "GET k")
	w.want("+OK\r\n", "+OK\r\n", "$1\r\nw\r\n")
	if waited := time.Since(began); waited < delay {
		t.Errorf("the reply came after %v", waited)
	}

	p.Add(Rule{Match: Command("incr"), Action: DelayReply(time.Hour)})
	w.send("INCR n")
	eventually(t, "the request is executed at once", func() bool { return server.Exists("n") })
	w.wantSilence()
}

func TestDelayRequest(t *testing.T) {
	p, _ := newProxy(t)
	w := dial(t, p)
	const delay = 100 * time.Millisecond
	p.Add(Rule{Match: Command("set"), Times: 1, Action: DelayRequest(delay)})
	began := time.Now()
	w.send("SET k v", "GET k")
	w.want("+OK\r\n", "$1\r\nv\r\n")
	if waited := time.Since(began); waited < delay {
		t.Errorf("the reply came after %v", waited)
	}
}

func TestDelaysHoldUpNoOtherConnection(t *testing.T) {
	p, _ := newProxy(t)
	p.Add(Rule{Match: Arg("a"), Action: DelayRequest(time.Hour)})
	p.Add(Rule{Match: Arg("b"), Action: DelayReply(time.Hour)})
	dial(t, p).send("GET a")
	dial(t, p).send("GET b")
	eventually(t, "both requests have arrived", func() bool { return p.Requests(nil) == 2 })
	w := dial(t, p)
	w.send("GET c")
	w.want("$-1\r\n")
}

func TestDelayedRequestOutlivesItsClient(t *testing.T) {
	p, server := newProxy(t)
	w := dial(t, p)
	fault := p.Add(Rule{Match: Command("set"), Action: DelayRequest(10 * soon)})
	w.send("SET k v", "INCR n")
	<-fault.Hit()
	w.conn.Close()
	if p.Executed(nil) != 0 || server.Exists("k") {
		t.Error("the request was forwarded at once")
	}
	eventually(t, "both requests are executed", func() bool { return server.Exists("n") })
	if !server.Exists("k") {
		t.Error("the later request overtook the delayed one")
	}
}

func TestCutAfterReplyBytes(t *testing.T) {
	for _, n := range []int{0, 3, 5, 100} {
		p, server := newProxy(t)
		w := dial(t, p)
		p.Add(Rule{Match: Command("set"), Action: CutAfterReplyBytes(n)})
		w.send("GET k", "SET k v")
		w.wantEnd("$-1\r\n" + "+OK\r\n"[:min(n, 5)])
		if !server.Exists("k") {
			t.Error("the request was not executed")
		}
	}
}

func TestCutAfterRequestBytes(t *testing.T) {
	p, server := newProxy(t)
	set := len(encode("SET", "k", "v"))
	for _, n := range []int{0, 1, set - 1, set, set + 1} {
		server.FlushAll()
		before := p.Executed(nil)
		w := dial(t, p)
		p.Add(Rule{Match: Command("set"), Times: 1, Action: CutAfterRequestBytes(n)})
		w.send("SET k v", "INCR n")
		w.wantEnd("")
		if n < set {
			time.Sleep(soon)
		} else {
			eventually(t, "the whole request is executed", func() bool { return server.Exists("k") })
		}
		if got, want := p.Executed(nil)-before, n/set; got != want || server.Exists("k") != (want == 1) {
			t.Errorf("of %d bytes: %d executed, k exists: %v", n, got, server.Exists("k"))
		}
		if server.Exists("n") {
			t.Errorf("of %d bytes: the later request was executed", n)
		}
	}
}

func TestBlackHole(t *testing.T) {
	p, server := newProxy(t)
	w, other := dial(t, p), dial(t, p)
	fault := p.Add(Rule{Match: Command("set"), Times: 1, Action: BlackHole()})
	w.send("GET k")
	w.want("$-1\r\n")
	w.send("SET k v", "INCR n")
	w.wantSilence()
	if p.Requests(Command("incr")) != 1 || p.Executed(Command("set", "incr")) != 0 || fault.Count() != 1 {
		t.Error("the requests are not counted as seen and not executed")
	}
	if server.Exists("k") || server.Exists("n") {
		t.Error("a request was executed")
	}
	other.send("SET k v")
	other.want("+OK\r\n")

	server.Close()
	other.wantEnd("")
	w.wantSilence()
}

func TestForsakeAll(t *testing.T) {
	p, server := newProxy(t)
	w := dial(t, p)
	w.send("SUBSCRIBE c")
	w.want("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
	p.ForsakeAll()
	server.Publish("c", "m")
	w.send("PING")
	w.wantSilence()
	other := dial(t, p)
	other.send("SET k v")
	other.want("+OK\r\n")
}

func TestBlackHoleTakesWhatIsStillDue(t *testing.T) {
	p, _ := newProxy(t)
	w := dial(t, p)
	p.Add(Rule{Match: Command("get"), Action: DelayReply(soon / 2)})
	p.Add(Rule{Match: Command("set"), Action: BlackHole()})
	w.send("GET k", "SET k v")
	w.wantSilence()
}

func TestRefuseConnections(t *testing.T) {
	p, _ := newProxy(t)
	before := dial(t, p)
	before.send("PING")
	before.want("+PONG\r\n")
	p.RefuseConnections(true)
	dial(t, p).wantEnd("")
	p.RefuseConnections(false)
	for _, w := range []*wire{before, dial(t, p)} {
		w.send("PING")
		w.want("+PONG\r\n")
	}
}

func TestDelayDial(t *testing.T) {
	p, _ := newProxy(t)
	const delay = 10 * soon
	p.DelayDial(delay)
	began := time.Now()
	w := dial(t, p)
	w.send("PING")
	w.wantSilence()
	w.want("+PONG\r\n")
	if waited := time.Since(began); waited < delay {
		t.Errorf("the reply came after %v", waited)
	}
}

func TestCutAll(t *testing.T) {
	p, server := newProxy(t)
	fault := p.Add(Rule{Match: Command("set"), Action: DelayRequest(soon)})
	w := dial(t, p)
	w.send("SET k v")
	<-fault.Hit()
	p.CutAll()
	w.wantEnd("")
	time.Sleep(2 * soon)
	if server.Exists("k") {
		t.Error("the delayed request survived the cut")
	}
	again := dial(t, p)
	again.send("PING")
	again.want("+PONG\r\n")
}

func TestTargetThatIsNotThere(t *testing.T) {
	checkLeaks(t)
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	p := proxyFor(t, server.Addr())
	server.Close()
	dial(t, p).wantEnd("")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	w := dial(t, p)
	w.send("PING")
	w.want("+PONG\r\n")
}

func TestCloseEndsConnectionsInEveryState(t *testing.T) {
	p, _ := newProxy(t)
	actions := []Action{
		{}, SwallowReply(), BlackHole(), RefuseReply("ERR"), DelayReply(time.Hour), DelayRequest(time.Hour),
	}
	var wires []*wire
	for i, action := range actions {
		name := fmt.Sprint("key", i)
		fault := p.Add(Rule{Match: Arg(name), Action: action})
		w, left := dial(t, p), dial(t, p)
		for _, w := range []*wire{w, left} {
			w.send("SET "+name+" v", "PING")
		}
		eventually(t, "both requests have arrived", func() bool { return fault.Count() == 2 })
		left.conn.Close()
		wires = append(wires, w)
	}
	p.DelayDial(time.Hour)
	wires = append(wires, dial(t, p))

	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for _, w := range wires {
		w.end()
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("the proxy still listens")
	}
}

func TestRepeatRequest(t *testing.T) {
	p, server := newProxy(t)
	p.Add(Rule{Match: Command("incr"), Times: 1, Action: RepeatRequest()})
	w := dial(t, p)
	w.send("INCR a", "INCR a", "PING")
	w.want(":1\r\n", ":3\r\n", "+PONG\r\n")
	w.wantSilence()
	if got, _ := server.Get("a"); got != "3" {
		t.Errorf("a is %s", got)
	}
}

func TestForget(t *testing.T) {
	p, _ := newProxy(t)
	w := dial(t, p)
	w.send("PING")
	w.want("+PONG\r\n")
	p.Forget()
	w.send("PING")
	w.want("+PONG\r\n")
	if n := p.Requests(nil); n != 1 {
		t.Errorf("%d requests are remembered", n)
	}
}
