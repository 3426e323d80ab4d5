package ls

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// fillScript makes keys as a cache has them, and each thousandth a lock.
const fillScript = `for i = ARGV[1], ARGV[2] - 1 do
	if i % 1000 == 0 then
		local value = string.format('%022d {"host":"api-3","pid":%d}', i, i)
		redis.call('SET', 'lock:' .. i, value, 'PX', 3600000)
	else
		redis.call('SET', 'cache:' .. i, 'some cached value of a web application ' .. i, 'PX', 3600000)
	end
end`

// BenchmarkLs runs ls over a million strings with a ttl, of which a thousand are locks: nothing but their values tells them
// apart. It reports how much memory ls has taken, and how long its slowest command has kept the server from others.
func BenchmarkLs(b *testing.B) {
	if err := redistest.Available(); err != nil {
		b.Skip(err)
	}
	const keys, part = 1_000_000, 20_000
	server, err := redistest.Start("slowlog-log-slower-than 500", "slowlog-max-len 10000")
	must(b, err)
	b.Cleanup(func() { _ = server.Close() })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	b.Cleanup(func() { _ = client.Close() })
	for from := 0; from < keys; from += part {
		if err := client.Eval(b.Context(), fillScript, nil, from, from+part).Err(); err != redis.Nil {
			b.Fatal(err)
		}
	}
	program := clitest.BuildForBench(b)
	must(b, client.Do(b.Context(), "slowlog", "reset").Err())

	peak, slowest := 0, time.Duration(0)
	for b.Loop() {
		printed, most := clitest.Measure(b, program, "ls", "--redis", "redis://"+server.Addr())
		peak = max(peak, most)
		if lines := strings.Count(printed, "\n"); lines != keys/1000+1 {
			b.Fatalf("%d lines", lines)
		}
	}
	slow, err := client.SlowLogGet(b.Context(), -1).Result()
	must(b, err)
	for _, entry := range slow {
		slowest = max(slowest, entry.Duration)
	}
	if peak > 0 {
		b.ReportMetric(float64(peak)/1024, "MB-peak")
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest-command")
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
