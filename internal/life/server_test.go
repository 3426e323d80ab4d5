//go:build unix

package life_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/need"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = Describe("KeepAlive while a real server", Label(spec.OnServer), func() {
	var server *redistest.Server
	var client *redis.Client

	begin := func(config ...string) *redislock.Client {
		GinkgoHelper()
		spec.RequireServer()
		spec.CheckLeaks()
		server = spec.StartServer(config...)
		client = spec.Connect(&redis.Options{Addr: server.Addr(), DialTimeout: time.Second, ReadTimeout: time.Second})
		locks := redislock.New(client)
		DeferCleanup(locks.Close)
		return locks
	}

	It("stands still for less than the validity keeps the lock", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, begin(), 2*time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(server.Pause()).To(Succeed())
		Consistently(kept.Err).WithTimeout(time.Until(lock.Until()) - 500*time.Millisecond).Should(Succeed())
		granted := lock.Until()
		Expect(server.Resume()).To(Succeed())
		Eventually(lock.Until).WithTimeout(2*time.Second).Should(BeTemporally(">", granted), "it is renewed")
		Expect(kept.Err()).NotTo(HaveOccurred())
	})

	It("stands still for longer ends the context no later than Until", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, begin(), time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(server.Pause()).To(Succeed())
		<-kept.Done()
		Expect(time.Now()).To(BeTemporally("~", lock.Until(), 100*time.Millisecond))
		Expect(context.Cause(kept)).To(MatchError(ContainSubstring("ran out unrenewed")))
		Expect(server.Resume()).To(Succeed())
	})

	It("is killed and comes back with its data keeps the lock", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, begin("appendonly yes", "appendfsync always"), 3*time.Second, nil, "a", "b")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		for range 2 {
			granted := lock.Until()
			Expect(server.Kill()).To(Succeed())
			Expect(server.Restart()).To(Succeed())
			Eventually(lock.Until).WithTimeout(3*time.Second).Should(BeTemporally(">", granted), "it is renewed")
			Expect(kept.Err()).NotTo(HaveOccurred())
		}
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
	})

	It("is killed and comes back without its data ends the context, and re-creates nothing", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, begin(), 3*time.Second, nil, "a", "b")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(server.Kill()).To(Succeed())
		Expect(server.Restart()).To(Succeed())
		Eventually(kept.Done()).WithTimeout(3 * time.Second).Should(BeClosed())
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(context.Cause(kept)).To(MatchError(ContainSubstring("is gone")))
		Expect(client.Keys(ctx, "*").Val()).To(BeEmpty())
	})

	It("is killed for good ends the context by Until, with the error of the connection", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, begin(), time.Second, nil, "a")
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		Expect(server.Kill()).To(Succeed())
		<-kept.Done()
		Expect(time.Now()).To(BeTemporally("~", lock.Until(), 100*time.Millisecond))
		Expect(context.Cause(kept)).To(MatchError(ContainSubstring("ran out unrenewed")))
	})

	It("of a Cluster fails over keeps its locks, and does not disturb those on other servers", func(ctx SpecContext) {
		spec.RequireServer()
		spec.CheckLeaks()
		cluster, err := redistest.StartCluster(3, 1)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Close)
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs(), DialTimeout: time.Second, ReadTimeout: time.Second,
		})
		DeferCleanup(client.Close)
		locks := redislock.New(client)
		DeferCleanup(locks.Close)

		kept := map[string]context.Context{}
		held := map[string]*redislock.Lock{}
		for i := range 30 {
			tag := fmt.Sprintf("{%d}", i)
			held[tag] = spec.Obtain(ctx, locks, 15*time.Second, nil, tag+":1", tag+":2")
			var stop context.CancelFunc
			kept[tag], stop = held[tag].KeepAlive(ctx)
			defer stop()
		}
		quick := spec.Obtain(ctx, locks, time.Second, nil, "{other}:quick") // has no time to wait for a hanging node
		victim, err := cluster.MasterOf("{0}:1")
		Expect(err).NotTo(HaveOccurred())
		other, err := cluster.MasterOf("{other}:quick")
		Expect(err).NotTo(HaveOccurred())
		if other == victim {
			victim, err = cluster.MasterOf("{1}:1")
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(victim).NotTo(Equal(other))
		keptQuick, stop := quick.KeepAlive(ctx)
		defer stop()
		time.Sleep(500 * time.Millisecond) // for the replicas to have it: WAIT speaks of one connection only
		Expect(victim.Pause()).To(Succeed())
		Consistently(keptQuick.Err).WithTimeout(2 * time.Second).Should(Succeed())
		stop() // until the replica has taken over, every node answers CLUSTERDOWN: for longer than a second
		Expect(victim.Kill()).To(Succeed())
		Expect(cluster.Settle()).To(Succeed())
		renewed := time.Now().Add(14849 * time.Millisecond) // the validity of what is sent from now on
		Eventually(func(g Gomega) {
			for tag, k := range kept {
				Expect(context.Cause(k)).NotTo(HaveOccurred(), tag)
				g.Expect(held[tag].Until()).To(BeTemporally(">=", renewed), tag)
			}
		}).WithTimeout(16 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
		for _, lock := range held {
			Expect(lock.Release(ctx)).To(Succeed())
		}
	})
})

// stoppedEnv tells the test binary to be the process that TestKeepAliveThroughSIGSTOP stops, and on which server.
const stoppedEnv = "REDISLOCK_TEST_STOPPED"

// A process that was stopped for longer than its locks last finds every one of their contexts ended at its first look.
func TestKeepAliveThroughSIGSTOP(t *testing.T) {
	if addr := os.Getenv(stoppedEnv); addr != "" {
		beStopped(t, addr)
		return
	}
	need.Server(t)
	server, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKeepAliveThroughSIGSTOP$", "-test.count=1")
	cmd.Env = append(os.Environ(), stoppedEnv+"="+server.Addr())
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	verdict := ""
	for lines := bufio.NewScanner(output); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "ready":
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(1500 * time.Millisecond)
			_ = cmd.Process.Signal(syscall.SIGCONT)
		case strings.HasPrefix(line, "found "):
			verdict = line
		}
	}
	if err := cmd.Wait(); err != nil || verdict != "found 1000 ended, 0 not" {
		t.Errorf("the stopped process: %v: %s", err, verdict)
	}
}

// beStopped keeps locks with a ttl of 1 s, is stopped, and looks at their contexts as soon as it runs again.
func beStopped(t *testing.T, addr string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	locks := redislock.New(client)
	contexts := make([]context.Context, 1000)
	for i := range contexts {
		lock, err := locks.Obtain(t.Context(), strconv.Itoa(i), time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		contexts[i], _ = lock.KeepAlive(t.Context()) // ends with the process
	}
	last := time.Now() // before the signal can come
	fmt.Println("ready")
	for {
		now := time.Now()
		if now.Sub(last) > time.Second {
			break
		}
		last = now
	}
	ended := 0
	for i, ctx := range contexts {
		select { // half of the looks are at Done
		case <-ctx.Done():
			ended++
		default:
			if i%2 == 0 && ctx.Err() != nil {
				ended++
			}
		}
	}
	fmt.Printf("found %d ended, %d not\n", ended, len(contexts)-ended)
}
