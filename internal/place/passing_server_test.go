package place_test

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/answer"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// notRunning is what begins the text of the system, not of Redis, for a server that does not run.
const notRunning = "connect: connection refused"

// notNow makes a real server give one of the answers that pass, until heal is called.
type notNow struct {
	name   string
	begin  string // of the answer
	config []string
	make   func(ctx context.Context, admin *redis.Conn, server *redistest.Server) (heal func(ctx context.Context))
}

func setting(name, bad, good string) func(context.Context, *redis.Conn, *redistest.Server) func(context.Context) {
	return func(ctx context.Context, admin *redis.Conn, _ *redistest.Server) func(context.Context) {
		Expect(admin.ConfigSet(ctx, name, bad).Err()).To(Succeed())
		return func(ctx context.Context) { Expect(admin.ConfigSet(ctx, name, good).Err()).To(Succeed()) }
	}
}

var onOneServer = []notNow{
	{
		name: "nothing, because it does not run", begin: notRunning, config: []string{"appendonly yes", "appendfsync always"},
		make: func(_ context.Context, _ *redis.Conn, server *redistest.Server) func(context.Context) {
			Expect(server.Stop()).To(Succeed())
			return func(context.Context) { Expect(server.Restart()).To(Succeed()) }
		},
	},
	{
		name: "too few replicas are connected", begin: "NOREPLICAS ",
		make: setting("min-replicas-to-write", "1", "0"),
	},
	{
		name: "its memory is full", begin: "OOM ", config: []string{"maxmemory-policy noeviction"},
		make: setting("maxmemory", "1", "0"),
	},
	{
		name: "it could not save its data", begin: "MISCONF ", config: []string{"save 3600 1000000"},
		make: func(ctx context.Context, admin *redis.Conn, _ *redistest.Server) func(context.Context) {
			status := func(ctx context.Context) string {
				return admin.InfoMap(ctx, "persistence").Item("Persistence", "rdb_last_bgsave_status")
			}
			save := func(ctx context.Context) { Expect(admin.Do(ctx, "BGSAVE").Err()).To(Succeed()) }
			directory := admin.ConfigGet(ctx, "dir").Val()["dir"]
			inTheWay := filepath.Join(directory, "dump.rdb") // it replaces a file by renaming another
			Expect(os.Mkdir(inTheWay, 0o700)).To(Succeed())
			save(ctx)
			Eventually(status).WithArguments(ctx).WithTimeout(10 * time.Second).Should(Equal("err"))
			return func(ctx context.Context) {
				Expect(os.Remove(inTheWay)).To(Succeed())
				save(ctx)
				Eventually(status).WithArguments(ctx).WithTimeout(10 * time.Second).Should(Equal("ok"))
			}
		},
	},
	{
		name: "it is a replica", begin: "READONLY ",
		make: func(ctx context.Context, admin *redis.Conn, _ *redistest.Server) func(context.Context) {
			Expect(admin.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err()).To(Succeed())
			return func(ctx context.Context) { Expect(admin.Do(ctx, "REPLICAOF", "NO", "ONE").Err()).To(Succeed()) }
		},
	},
	{
		name: "it is a replica that has lost its master", begin: "MASTERDOWN ", config: []string{"replica-serve-stale-data no"},
		make: func(ctx context.Context, admin *redis.Conn, _ *redistest.Server) func(context.Context) {
			Expect(admin.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err()).To(Succeed())
			return func(ctx context.Context) { Expect(admin.Do(ctx, "REPLICAOF", "NO", "ONE").Err()).To(Succeed()) }
		},
	},
	{
		name: "it runs a script that does not end", begin: "BUSY ", config: []string{"lua-time-limit 20"},
		make: func(ctx context.Context, admin *redis.Conn, server *redistest.Server) func(context.Context) {
			other := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
			ended := make(chan struct{})
			go func() { // ends with the script
				defer close(ended)
				defer other.Close()
				_ = other.Eval(context.WithoutCancel(ctx), "while true do end", nil).Err()
			}()
			Eventually(func() error { return admin.Ping(ctx).Err() }).WithTimeout(10 * time.Second).Should(MatchError(HavePrefix("BUSY")))
			return func(ctx context.Context) {
				Expect(admin.ScriptKill(ctx).Err()).To(Succeed())
				<-ended
			}
		},
	},
	{
		name: "it has too many clients", begin: "max number of clients ",
		make: func(ctx context.Context, admin *redis.Conn, _ *redistest.Server) func(context.Context) {
			Expect(admin.ConfigSet(ctx, "maxclients", "1").Err()).To(Succeed())
			Expect(admin.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()).To(Succeed())
			Expect(admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err()).To(Succeed())
			return func(ctx context.Context) { Expect(admin.ConfigSet(ctx, "maxclients", "100").Err()).To(Succeed()) }
		},
	},
}

var _ = Describe("While a real Redis answers that", Label(spec.OnServer), func() {
	for _, now := range onOneServer {
		It(now.name+", calls wait for the end of it", func(ctx SpecContext) {
			Expect(append(answer.Passing(), notRunning)).To(ContainElement(now.begin))
			spec.RequireServer()
			spec.CheckLeaks()
			server := spec.StartServer(now.config...)
			client := spec.Connect(&redis.Options{Addr: server.Addr(), DialerRetries: 1}) // by default, a refused connection takes 0.4 s to show
			admin := spec.Connect(&redis.Options{Addr: server.Addr()}).Conn()
			DeferCleanup(admin.Close)
			locks := redislock.New(client)
			DeferCleanup(locks.Close)
			Expect(admin.Ping(ctx).Err()).To(Succeed())
			waitsOut(ctx, locks, func(ctx context.Context) func(context.Context) { return now.make(ctx, admin, server) }, now.begin,
				[]string{"free"}, "a")
		})
	}
})

// waitsOut checks that those who wait for a lock wait for the end of an answer that passes, and that those who ask once for
// keys that make the server answer so get it as their error.
func waitsOut(
	ctx context.Context, locks *redislock.Client, begins func(context.Context) (heal func(context.Context)), begin string,
	once []string, keys ...string,
) {
	GinkgoHelper()
	queue := &redislock.Options{Queue: true}
	saysThat := MatchError(ContainSubstring(begin))
	switch begin {
	case notRunning, "max number of clients ": // the server closes connections at once, and the answer may be lost with them
		saysThat = MatchError(MatchRegexp(begin + "|EOF|broken pipe|connection reset"))
	}
	held := spec.Obtain(ctx, locks, time.Minute, nil, keys[0])
	first := spec.StartWaiter(ctx, locks, time.Minute, queue, keys...)
	cut := spec.StartWaiter(ctx, locks, time.Minute, queue, keys...)
	heal := begins(ctx)

	_, err := locks.ObtainMulti(ctx, once, time.Minute, nil)
	Expect(err).To(saysThat)
	Expect(err).NotTo(MatchError(redislock.ErrNotObtained))

	_, err = locks.ObtainMulti(context.WithoutCancel(ctx), once, time.Minute, queue)
	Expect(err).To(saysThat, "without a deadline")
	Expect(err).NotTo(MatchError(redislock.ErrNotObtained))

	began := time.Now()
	_, err = locks.ObtainMulti(spec.Within(ctx, 400*time.Millisecond), once, time.Minute, queue)
	Expect(time.Since(began)).To(BeNumerically("~", 400*time.Millisecond, spec.Soon))
	Expect(err).To(saysThat)
	Expect(err).To(MatchError(redislock.ErrNotObtained))
	Expect(err).To(MatchError(context.DeadlineExceeded))

	patient := make(chan error, 1)
	go func() { // ends with the spec at the latest
		lock, err := locks.ObtainMulti(spec.Within(ctx, time.Minute), once, time.Minute, queue)
		if err == nil {
			err = lock.Release(ctx)
		}
		patient <- err
	}()

	Consistently(first.Done).WithTimeout(1500 * time.Millisecond).ShouldNot(BeClosed())
	began = time.Now()
	cut.Cancel()
	err = cut.Over()
	Expect(cut.At).To(BeTemporally("<", began.Add(spec.Soon)))
	Expect(err).To(MatchError(redislock.ErrNotObtained))
	Expect(err).To(MatchError(context.Canceled))
	Expect(err).To(saysThat)

	Expect(patient).NotTo(Receive())
	heal(ctx)
	Eventually(func() error { return held.Release(ctx) }).WithTimeout(5 * time.Second).Should(Succeed())
	Expect(first.Granted().Release(ctx)).To(Succeed())
	Eventually(patient).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
}

var _ = Describe("While a Cluster answers that", Label(spec.OnServer), Ordered, func() {
	var cluster *redistest.Cluster
	var locks *redislock.Client
	keys := []string{"{t}a", "{t}b"}

	BeforeAll(func() { cluster = spec.StartCluster() })
	BeforeEach(func() {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		DeferCleanup(client.Close)
		locks = redislock.New(client)
		DeferCleanup(locks.Close)
	})

	It("nobody serves the slot, calls wait for the end of it", func(ctx SpecContext) {
		waitsOut(ctx, locks, func(ctx context.Context) func(context.Context) {
			owner, err := cluster.MasterOf(keys[0])
			Expect(err).NotTo(HaveOccurred())
			node := spec.Connect(&redis.Options{Addr: owner.Addr()})
			slot := redistest.SlotOf(keys[0])
			Expect(node.Do(ctx, "CLUSTER", "DELSLOTS", slot).Err()).To(Succeed())
			return func(ctx context.Context) {
				Expect(node.Do(ctx, "CLUSTER", "ADDSLOTS", slot).Err()).To(Succeed())
				Expect(cluster.Settle()).To(Succeed())
			}
		}, "CLUSTERDOWN ", keys, keys...)
	})

	It("the slot moves, calls wait for the end of it", func(ctx SpecContext) {
		waitsOut(ctx, locks, func(ctx context.Context) func(context.Context) {
			move, err := cluster.BeginMigration(redistest.SlotOf(keys[0]))
			Expect(err).NotTo(HaveOccurred())
			return func(context.Context) {
				Expect(move.MoveKeys()).To(Succeed())
				Expect(move.Finish()).To(Succeed())
			}
		}, "TRYAGAIN ", keys, keys...)
	})
})
