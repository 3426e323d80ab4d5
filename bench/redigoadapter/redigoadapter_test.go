package redigoadapter_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
	"github.com/redislock/redislock/bench/redigoadapter"
	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/redislocktest"
)

func TestConn(t *testing.T) {
	redislocktest.TestConn(t, start(t), dial)
}

func start(t *testing.T) (address string) {
	t.Helper()
	need.Server(t)
	server, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server.Addr()
}

func dial(t *testing.T, address string) adapter.Conn {
	t.Helper()
	pool := &redis.Pool{
		MaxIdle: 20,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", address, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(3*time.Second))
		},
	}
	t.Cleanup(func() { _ = pool.Close() })
	return redigoadapter.Conn{Pool: pool}
}

// A waiter in line is handed its keys long before its next look.
func TestLine(t *testing.T) {
	locks := redislock.New(redislock.Adapt(dial(t, start(t))))
	defer locks.Close()
	ctx := t.Context()
	lock, err := locks.ObtainMulti(ctx, []string{"a", "b"}, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = lock.Release(ctx)
	}()
	began := time.Now()
	next, err := locks.Obtain(ctx, "b", time.Minute, &redislock.Options{Queue: true})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := next.Release(ctx); err != nil {
		t.Error(err)
	}
}

// The page shows the file as it is.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("redigoadapter.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(file), "\n") // without the comment of the package
	if !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Error("docs/clients.md has another adapter than redigoadapter.go")
	}
}
