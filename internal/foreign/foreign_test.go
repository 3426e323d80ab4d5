package foreign_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
	"github.com/redislock/redislock/redislocktest"
)

func TestConn(t *testing.T) { test(t, nil) }

func startServer(t *testing.T) *redistest.Server {
	t.Helper()
	need.Server(t)
	server, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// test tests an adapter of go-redis that has a defect.
func test(t *testing.T, defect func(spec.Adapter) adapter.Conn) {
	t.Helper()
	redislocktest.TestConn(t, startServer(t).Addr(), func(t *testing.T, address string) adapter.Conn {
		client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, ReadTimeout: time.Second})
		t.Cleanup(func() { _ = client.Close() })
		if defect == nil {
			return spec.Adapter{Client: client}
		}
		return defect(spec.Adapter{Client: client})
	})
}

// wrong is an adapter with a defect.
type wrong struct {
	spec.Adapter

	run    func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script)
	listen func(c spec.Adapter, ctx context.Context, channel string, open func(), message func(payload string)) error
}

func (w *wrong) Run(ctx context.Context, scripts []*adapter.Script) {
	if w.run == nil {
		w.Adapter.Run(ctx, scripts)
		return
	}
	w.run(w.Adapter, ctx, scripts)
}

func (w *wrong) Listen(ctx context.Context, channel string, open func(), message func(payload string)) error {
	if w.listen == nil {
		return w.Adapter.Listen(ctx, channel, open, message)
	}
	return w.listen(w.Adapter, ctx, channel, open, message)
}

// defects are adapters that are wrong, by the test that is to notice that.
var defects = map[string]*wrong{
	"comparison": nil, // see uncomparable
	"replies": {run: func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script) {
		c.Run(ctx, scripts)
		for _, s := range scripts {
			if s.Reply == "" {
				s.Reply = nil
			}
		}
	}},
	"keys_and_arguments": {run: func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script) {
		for _, s := range scripts {
			for i := range s.Args {
				s.Args[i] = strings.TrimRight(s.Args[i], "\r\n")
			}
		}
		c.Run(ctx, scripts)
	}},
	"error_replies": {run: func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script) {
		c.Run(ctx, scripts)
		for _, s := range scripts {
			if s.Err != nil {
				s.Err = errors.New(s.Err.Error())
			}
		}
	}},
	"many_scripts_in_one_Run": {run: func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script) {
		c.Run(ctx, scripts)
		if len(scripts) > 1 {
			scripts[0].Reply, scripts[1].Reply = scripts[1].Reply, scripts[0].Reply
		}
	}},
	"Sent": {run: func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script) {
		for _, s := range scripts {
			sent := s.Sent
			s.Sent = func() error { _ = sent(); return nil }
		}
		c.Run(ctx, scripts)
	}},
	"messages": {listen: func(
		c spec.Adapter, ctx context.Context, channel string, open func(), message func(payload string),
	) error {
		all := 0
		return c.Listen(ctx, channel, open, func(payload string) {
			if all++; all != 50 {
				message(payload)
			}
		})
	}},
	"one_round_trip": {run: func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script) {
		for i := range scripts {
			c.Run(ctx, scripts[i:i+1])
		}
	}},
	"a_connection_that_breaks": {run: func(c spec.Adapter, ctx context.Context, scripts []*adapter.Script) {
		c.Run(ctx, scripts)
		for i, s := range scripts {
			if _, answered := errors.AsType[adapter.ReplyError](s.Err); s.Err != nil && !answered && s.Sent() == nil {
				c.Run(ctx, scripts[i:i+1])
			}
		}
	}},
	"a_subscription_that_breaks": {listen: func(
		c spec.Adapter, ctx context.Context, channel string, open func(), message func(payload string),
	) error {
		for ctx.Err() == nil {
			_ = c.Listen(ctx, channel, open, message)
			time.Sleep(10 * time.Millisecond)
		}
		return ctx.Err()
	}},
}

// uncomparable is an adapter that cannot be compared.
type uncomparable struct {
	spec.Adapter

	_ []int
}

const defectVariable = "REDISLOCK_TEST_DEFECT"

// TestDefect fails, in a process that TestThatADefectIsFound starts.
func TestDefect(t *testing.T) {
	name := os.Getenv(defectVariable)
	if name == "" {
		t.Skip("it is for TestThatADefectIsFound")
	}
	test(t, func(a spec.Adapter) adapter.Conn {
		if name == "comparison" {
			return uncomparable{Adapter: a}
		}
		w := *defects[name]
		w.Adapter = a
		return &w
	})
}

func TestThatADefectIsFound(t *testing.T) {
	need.Server(t)
	for name := range defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			process := exec.Command(os.Args[0], "-test.run", "^TestDefect$/^"+name+"$") //nolint:gosec // this program
			process.Env = append(os.Environ(), defectVariable+"="+name)
			output, err := process.CombinedOutput()
			if err == nil || !strings.Contains(string(output), "--- FAIL: TestDefect/"+name) {
				t.Errorf("not found: %v\n%s", err, output)
			}
		})
	}
}

func TestAdaptersThatCannotBeUsed(t *testing.T) {
	for _, c := range []adapter.Conn{nil, far{}} {
		_, err := redislock.New(redislock.Adapt(c)).Obtain(t.Context(), "a", time.Minute, nil)
		if !errors.Is(err, redislock.ErrInvalid) {
			t.Errorf("%T: %v", c, err)
		}
	}
}

// far is an adapter with a Reach that does not exist.
type far struct{ adapter.Conn }

func (far) About() adapter.About { return adapter.About{Reach: 7} }
