package clitest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/incarnation"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// NeedServer skips the spec if there is no redis-server, or fails it if REDISLOCK_TEST_REQUIRE says that there must be
// one. It also builds the program, so that no spec measures that.
func NeedServer() {
	ginkgo.GinkgoHelper()
	if err := redistest.Available(); err != nil {
		if os.Getenv("REDISLOCK_TEST_REQUIRE") == "1" {
			ginkgo.Fail(err.Error())
		}
		ginkgo.Skip(err.Error())
	}
	Program()
}

// NewServer starts a redis-server for one spec.
func NewServer(config ...string) (*redistest.Server, *redis.Client) {
	ginkgo.GinkgoHelper()
	NeedServer()
	server, err := redistest.Start(config...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	ginkgo.DeferCleanup(client.Close)
	return server, client
}

// NewQuorum starts three servers for one spec. It returns them, a client of each, their URLs as $REDIS_URL, and a Client
// that locks on them as a quorum.
func NewQuorum() (servers []*redistest.Server, clients []*redis.Client, urls string, locks *redislock.Client) {
	ginkgo.GinkgoHelper()
	var all []redislock.RedisClient
	for range 3 {
		server, client := NewServer()
		servers, clients, all = append(servers, server), append(clients, client), append(all, client)
		urls += " redis://" + server.Addr()
	}
	locks = redislock.NewQuorum(all)
	ginkgo.DeferCleanup(locks.Close)
	return servers, clients, urls, locks
}

// RefusingReleases returns a proxy before a server. It lets the first script through, which acquires, and refuses the next
// times scripts, as a server does that has too few replicas. The server must know the scripts.
func RefusingReleases(server *redistest.Server, times int) (*faultproxy.Proxy, *faultproxy.Fault) {
	ginkgo.GinkgoHelper()
	proxy, err := faultproxy.New(server.Addr())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(proxy.Close)
	isScript, scripts := faultproxy.Command("evalsha", "eval"), 0
	fault := proxy.Add(faultproxy.Rule{
		Match: func(args []string) bool {
			if !isScript(args) {
				return false
			}
			scripts++
			return scripts > 1
		},
		Times: times, Action: faultproxy.RefuseReply("NOREPLICAS Not enough good replicas to write."),
	})
	return proxy, fault
}

// NewMemory starts a Redis in memory for one spec, which has the identity that a guard needs.
func NewMemory() (server *miniredis.Miniredis, identity *incarnation.Server, url string) {
	ginkgo.GinkgoHelper()
	Program()
	server = miniredis.NewMiniRedis()
	server.ClockTTL(true)
	gomega.Expect(server.Start()).To(gomega.Succeed())
	ginkgo.DeferCleanup(server.Close)
	return server, incarnation.Of(server), "redis://" + server.Addr()
}

// Redis is a server of its own for each spec.
type Redis struct {
	*redistest.Server

	Client *redis.Client
	URL    string
}

// OnServer starts a redis-server before each spec of the container in which it is called.
func OnServer(config ...string) *Redis {
	r := new(Redis)
	ginkgo.BeforeEach(func() {
		r.Server, r.Client = NewServer(config...)
		r.URL = "redis://" + r.Addr()
	})
	return r
}

// Run runs the program on this server, to its end.
func (r *Redis) Run(args ...string) *gexec.Session {
	ginkgo.GinkgoHelper()
	return Run(r.URL, args...)
}

// InfoOf returns the fields of a section of INFO.
func InfoOf(ctx context.Context, client *redis.Client, section string) map[string]string {
	ginkgo.GinkgoHelper()
	text, err := client.Info(ctx, section).Result()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	fields := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// Bob is the metadata of a holder.
const Bob = `{"host":"api-3","pid":4121,"user":"bob","command":"./ship 7","now":"2026-03-01T04:10:00Z"}`

// Hold locks keys by the token "the-token".
func Hold(client redis.UniversalClient, metadata string, keys ...string) *redislock.Lock {
	ginkgo.GinkgoHelper()
	lock, err := redislock.ObtainMulti(context.Background(), client, keys, time.Minute, &redislock.Options{
		Token: "the-token", Metadata: metadata,
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return lock
}

// Stand puts an inbox into the line of a key: its waiters, which came so long ago, and its mark, which ends in left. It
// makes no mark if left is 0. Only an inbox with a left between 0 and 10 minutes is live, and below 200 s it is late.
func Stand(
	ctx context.Context, client redis.Cmdable, key, inbox, metadata string, left time.Duration, ago ...time.Duration,
) {
	ginkgo.GinkgoHelper()
	const life = 600 // seconds
	now, err := client.Time(ctx).Result()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	var members []redis.Z
	if left != 0 {
		deadline := now.Add(left).UnixMilli()
		members = append(members, redis.Z{Score: -float64(deadline*4096 + 2*life), Member: "~" + inbox})
	}
	for i, d := range ago {
		entry := fmt.Sprintf("%s/%d 1 60000 0 %[1]s-%[2]d %[3]s", inbox, i, metadata)
		members = append(members, redis.Z{Score: float64(now.Add(-d).UnixMicro()), Member: strings.TrimSuffix(entry, " ")})
	}
	gomega.Expect(client.ZAdd(ctx, keyname.LineOf(key), members...).Err()).To(gomega.Succeed())
}

// WaitInLine makes somebody wait in line for a key until the spec ends.
func WaitInLine(ctx context.Context, client redis.UniversalClient, key string) {
	ginkgo.GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	locks := redislock.New(client)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = locks.Obtain(ctx, key, time.Second, &redislock.Options{Queue: true})
	}()
	ginkgo.DeferCleanup(func() {
		cancel()
		<-done
		gomega.Expect(locks.Close()).To(gomega.Succeed())
	})
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		found, err := locks.Inspect(ctx, key)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(found[0].Waiters).To(gomega.Equal(1))
	}).Should(gomega.Succeed())
}
