//go:build unix

package run

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// place is a server of its own for each spec, and a directory in which a command and its spec meet.
type place struct {
	server *redistest.Server
	client *redis.Client
	url    string
	dir    string
}

// newPlace starts a server that keeps its data when it is killed, and can fail to save it.
func newPlace() *place {
	p := new(place)
	BeforeEach(func() {
		p.server, p.client = clitest.NewServer("appendonly yes", "save 3600 1000000")
		p.url, p.dir = "redis://"+p.server.Addr(), GinkgoT().TempDir()
	})
	return p
}

// meeting is a command that says ready, and goes on when the spec calls goOn.
const meeting = `echo ready; while ! [ -e "$DIR/go" ]; do sleep 0.02; done; `

func (p *place) goOn() {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600)).To(Succeed())
}

func (p *place) begin(args ...string) *gexec.Session {
	GinkgoHelper()
	return p.beginAt(p.url, args...)
}

func (p *place) beginAt(url string, args ...string) *gexec.Session {
	GinkgoHelper()
	return clitest.Start(clitest.Command([]string{"REDIS_URL=" + url, "DIR=" + p.dir}, append([]string{"run"}, args...)...))
}

func (p *place) config(name, value string) {
	GinkgoHelper()
	Expect(p.client.ConfigSet(context.Background(), name, value).Err()).To(Succeed())
}

func (p *place) free(keys ...string) bool {
	return p.client.Exists(context.Background(), keys...).Val() == 0
}

func (p *place) ttl(key string) time.Duration { return p.client.PTTL(context.Background(), key).Val() }

// outage is a time in which a server does not serve releases.
type outage struct{ begin, end func(*place) }

var (
	noReplicas = outage{
		func(p *place) { p.config("min-replicas-to-write", "1") },
		func(p *place) { p.config("min-replicas-to-write", "0") },
	}
	readOnly = outage{
		func(p *place) { Expect(p.client.ReplicaOf(context.Background(), "127.0.0.1", "1").Err()).To(Succeed()) },
		func(p *place) { Expect(p.client.ReplicaOf(context.Background(), "no", "one").Err()).To(Succeed()) },
	}
	refused = outage{
		func(p *place) { Expect(p.server.Kill()).To(Succeed()) },
		func(p *place) { Expect(p.server.Restart()).To(Succeed()) },
	}
	hanging = outage{
		func(p *place) { Expect(p.server.Pause()).To(Succeed()) },
		func(p *place) { Expect(p.server.Resume()).To(Succeed()) },
	}
	cannotSave = outage{
		func(p *place) {
			ctx := context.Background()
			where := p.client.ConfigGet(ctx, "dir").Val()["dir"]
			Expect(os.Mkdir(filepath.Join(where, "dump.rdb"), 0o700)).To(Succeed()) // no file can take its place
			Expect(p.client.BgSave(ctx).Err()).To(Succeed())
			Eventually(func() string { return clitest.InfoOf(ctx, p.client, "persistence")["rdb_last_bgsave_status"] }).
				Should(Equal("err"))
		},
		func(p *place) { p.config("stop-writes-on-bgsave-error", "no") },
	}
)

var _ = Describe("the end of a run", func() {
	p := newPlace()

	DescribeTable("is put off until Redis can release the locks",
		func(o outage) {
			session := p.begin("-k", "a", "-k", "b", "--ttl", "10m", "--", "sh", "-c", meeting+"exit 3")
			Eventually(session).Should(gbytes.Say("ready"))
			o.begin(p)
			p.goOn()
			time.Sleep(time.Second) // longer than the library and go-redis retry by themselves
			o.end(p)
			Eventually(session, "20s").Should(gexec.Exit(3))
			Expect(p.free("a", "b")).To(BeTrue())
			Expect(clitest.Stderr(session)).NotTo(ContainSubstring("cannot release"))
		},
		Entry("which has too few replicas", noReplicas),
		Entry("which is a replica for a moment", readOnly),
		Entry("which refuses connections", refused),
		Entry("which hangs", hanging),
		Entry("which cannot save its data", cannotSave),
	)

	const which = `"a", which expires by \d\d:\d\d:\d\d \(in (9m5\ds|10m00s)\): `

	DescribeTable("comes at once by a signal, says which keys stay, and hides no exit code",
		func(sig syscall.Signal) {
			session := p.begin("-k", "a", "--ttl", "10m", "--", "sh", "-c", meeting+"exit 3")
			Eventually(session).Should(gbytes.Say("ready"))
			noReplicas.begin(p)
			p.goOn()
			Eventually(session.Err).Should(gbytes.Say("redislock: still trying to release " + which + "NOREPLICAS .*\n"))
			Consistently(session, "300ms").ShouldNot(gexec.Exit())
			asked := time.Now()
			session.Signal(sig)
			Eventually(session).Should(gexec.Exit(3))
			Expect(time.Since(asked)).To(BeNumerically("<", 2*time.Second))
			Expect(session.Err).To(gbytes.Say("^redislock: cannot release " + which + "NOREPLICAS .*\n$"))
			Expect(p.ttl("a")).To(BeNumerically(">", 9*time.Minute))
		},
		Entry("SIGTERM", syscall.SIGTERM), Entry("SIGINT", syscall.SIGINT), Entry("SIGHUP", syscall.SIGHUP),
	)

	It("releases also what a signal has ended", func() {
		session := p.begin("-k", "a", "--ttl", "10m", "--", "sh", "-c", "echo ready; exec sleep 30")
		Eventually(session).Should(gbytes.Say("ready"))
		noReplicas.begin(p)
		session.Signal(syscall.SIGTERM)
		Eventually(session.Err).Should(gbytes.Say("still trying to release " + which))
		noReplicas.end(p)
		Eventually(session).Should(gexec.Exit(143))
		Expect(p.free("a")).To(BeTrue())
	})

	It("does not last longer than the locks", func() {
		session := p.begin("-k", "a", "--ttl", "1500ms", "--", "sh", "-c", meeting+"exit 3")
		Eventually(session).Should(gbytes.Say("ready"))
		hanging.begin(p)
		p.goOn()
		began := time.Now()
		Eventually(session, "10s").Should(gexec.Exit(3))
		Expect(time.Since(began)).To(BeNumerically("<", 4*time.Second))
		Expect(clitest.Stderr(session)).To(MatchRegexp(`(?m)^redislock: cannot release "a", which (expires by .*|has expired by now): no answer from Redis$`))
	})

	It("releases what is left of a lost lock", func() {
		session := p.begin("-k", "a", "-k", "b", "--ttl", "3s", "--grace", "200ms", "--", "sh", "-c", "echo ready; exec sleep 30")
		Eventually(session).Should(gbytes.Say("ready"))
		Expect(p.client.Del(context.Background(), "b").Err()).To(Succeed())
		Eventually(session.Err, "10s").Should(gbytes.Say("the lock is lost"))
		Eventually(session).Should(gexec.Exit(76))
		Expect(p.free("a")).To(BeTrue())
	})

	It("releases the locks of a command that cannot be started", func() {
		Expect(p.begin("-k", "warm", "--", "true").Wait("10s")).To(gexec.Exit(0)) // now the server has the scripts
		proxy, fault := clitest.RefusingReleases(p.server, 10)
		script := filepath.Join(p.dir, "script")
		Expect(os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700)).To(Succeed())
		session := p.beginAt("redis://"+proxy.Addr(), "-k", "a", "--ttl", "10m", "--at-least", "5m", "--", script)
		Eventually(session, "20s").Should(gexec.Exit(127))
		Expect(fault.Count()).To(Equal(10))
		Expect(p.free("a")).To(BeTrue())
	})

	It("is told in the log, with the keys and the time", func() {
		session := p.begin("-k", "a", "--ttl", "10m", "--log-format", "json", "--", "sh", "-c", meeting)
		Eventually(session).Should(gbytes.Say("ready"))
		noReplicas.begin(p)
		p.goOn()
		Eventually(session.Err).Should(gbytes.Say(`"msg":"error","error":"still trying to release`))
		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Err).To(gbytes.Say(`"msg":"not released","keys":\["a"\],"until":"[^"]+Z","error":"NOREPLICAS [^"]+"}\n$`))
		Expect(strings.Count(clitest.Stderr(session), "not released")).To(Equal(1))
	})

	DescribeTable("waits for Redis while the locks are held, within limits",
		func(left, limit time.Duration) { Expect(releaseTime(left)).To(Equal(limit)) },
		Entry("nothing left", -time.Second, time.Second),
		Entry("two seconds", 2*time.Second, 2*time.Second),
		Entry("a long ttl", 10*time.Minute, locking.ReleaseLimit),
	)
})

var _ = Describe("redislock run --at-least", func() {
	p := newPlace()

	DescribeTable("leaves the lock of a short command for the rest of that time, and ends at once",
		func(ttl string) {
			before := time.Now()
			session := p.begin("-k", "a", "-k", "b", "--ttl", ttl, "--at-least", "60s", "--", "sh", "-c", "exit 3")
			Eventually(session).Should(gexec.Exit(3))
			after := time.Now()
			Expect(clitest.Stderr(session)).To(BeEmpty())
			for _, key := range []string{"a", "b"} {
				end := time.Now().Add(p.ttl(key))
				Expect(end).To(BeTemporally(">=", before.Add(time.Minute)))
				Expect(end).To(BeTemporally("<=", after.Add(time.Minute+time.Second)))
			}
		},
		Entry("which is longer than its ttl", "5s"),
		Entry("which is shorter than its ttl", "10m"),
	)

	It("releases the lock when that time is over", func() {
		session := p.begin("-k", "a", "--at-least", "300ms", "--", "sleep", "0.5")
		Eventually(session).Should(gexec.Exit(0))
		Expect(p.free("a")).To(BeTrue())
	})

	It("holds also for a command that a signal has ended", func() {
		session := p.begin("-k", "a", "--at-least", "10m", "--", "sh", "-c", "echo ready; exec sleep 30")
		Eventually(session).Should(gbytes.Say("ready"))
		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gexec.Exit(143))
		Expect(p.ttl("a")).To(BeNumerically(">", 9*time.Minute))
	})

	It("holds after renewals, which go back to the ttl", func() {
		session := p.begin("-k", "a", "--ttl", "300ms", "--at-least", "60s", "--", "sleep", "1")
		Eventually(session).Should(gexec.Exit(0))
		Consistently(func() time.Duration { return p.ttl("a") }, "500ms").Should(BeNumerically(">", 50*time.Second))
	})

	It("gives the lock to the next in line when it expires", func() {
		Eventually(p.begin("-k", "a", "--ttl", "10m", "--at-least", "2s", "--", "true")).Should(gexec.Exit(0))
		left := p.ttl("a")
		Expect(left).To(BeNumerically(">", 0))
		began := time.Now()
		Eventually(p.begin("-k", "a", "--", "true"), "20s").Should(gexec.Exit(0))
		Expect(time.Since(began)).To(BeNumerically(">=", left-50*time.Millisecond))
	})

	It("releases what is left of a lost lock", func() {
		session := p.begin("-k", "a", "-k", "b", "--at-least", "10m", "--", "redis-cli", "-u", p.url, "del", "b")
		Eventually(session).Should(gexec.Exit(76))
		Expect(clitest.Stderr(session)).To(ContainSubstring("the lock was lost before the command ended"))
		Expect(p.free("a")).To(BeTrue())
	})

	It("tells of a lock that is gone", func() {
		session := p.begin("-k", "a", "--at-least", "10m", "--", "redis-cli", "-u", p.url, "del", "a")
		Eventually(session).Should(gexec.Exit(76))
		Expect(p.free("a")).To(BeTrue())
	})

	It("is put off until Redis can do it", func() {
		session := p.begin("-k", "a", "--ttl", "5m", "--at-least", "10m", "--", "sh", "-c", meeting)
		Eventually(session).Should(gbytes.Say("ready"))
		noReplicas.begin(p)
		p.goOn()
		Eventually(session.Err).Should(gbytes.Say(`still trying to leave "a" locked until \d\d:\d\d:\d\d \(in 9m5\ds\): NOREPLICAS`))
		noReplicas.end(p)
		Eventually(session).Should(gexec.Exit(0))
		Expect(p.ttl("a")).To(BeNumerically(">", 9*time.Minute))
	})

	It("says what holds if Redis cannot do it", func() {
		session := p.begin("-k", "a", "--ttl", "5m", "--at-least", "10m", "--", "sh", "-c", meeting+"exit 3")
		Eventually(session).Should(gbytes.Say("ready"))
		noReplicas.begin(p)
		p.goOn()
		Eventually(session.Err).Should(gbytes.Say("still trying"))
		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gexec.Exit(3))
		const when = `\d\d:\d\d:\d\d \(in %s\)`
		Expect(session.Err).To(gbytes.Say(`cannot leave "a" locked until ` + strings.ReplaceAll(when, "%s", `9m5\ds`) +
			`: NOREPLICAS .*; held until ` + strings.ReplaceAll(when, "%s", `4m5\ds`) + `, expired by ` + strings.ReplaceAll(when, "%s", `9m5\ds`) + "\n$"))
	})

	It("leaves to the run around it what that has locked", func() {
		session := p.begin("-k", "a", "--", clitest.Program(), "run", "--reenter", "-k", "a", "-k", "b", "--at-least", "10m", "--", "true")
		Eventually(session).Should(gexec.Exit(0))
		Expect(p.free("a")).To(BeTrue())
		Expect(p.ttl("b")).To(BeNumerically(">", 9*time.Minute))
	})

	It("is told in the log", func() {
		session := p.begin("-k", "a", "--at-least", "10m", "--log-format", "json", "--", "true")
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Err).To(gbytes.Say(`"msg":"left","keys":\["a"\],"until":"[^"]+Z"}\n$`))
	})
})

var _ = Describe("redislock run --max-hold", func() {
	p := newPlace()
	const line = "redislock: the command has held the lock for %, as long as --max-hold allows, so it is ended\n"

	It("ends the command, and releases the lock then", func() {
		began := time.Now()
		session := p.begin("-k", "a", "--max-hold", "500ms", "--", "sleep", "30")
		Eventually(session).Should(gexec.Exit(124))
		Expect(time.Since(began)).To(BeNumerically(">=", 500*time.Millisecond))
		Expect(clitest.Stderr(session)).To(Equal(strings.ReplaceAll(line, "%", "500ms")))
		Expect(p.free("a")).To(BeTrue())
	})

	It("does not touch a command that ends before", func() {
		session := p.begin("-k", "a", "--max-hold", "10s", "--", "sh", "-c", "exit 3")
		Eventually(session).Should(gexec.Exit(3))
		Expect(clitest.Stderr(session)).To(BeEmpty())
	})

	It("kills the command after the grace period, and renews the lock until then", func() {
		session := p.begin("-k", "a", "--ttl", "600ms", "--grace", "300ms", "--max-hold", "200ms", "--", "sh", "-c",
			`trap 'echo asked' TERM; echo $$ >"$DIR/pid"; while :; do sleep 0.05; done`)
		pid := clitest.PidIn(filepath.Join(p.dir, "pid"))
		Eventually(session).Should(gbytes.Say("asked"))
		for clitest.Alive(pid) {
			held := !p.free("a")
			if clitest.Alive(pid) { // otherwise it may have been released meanwhile
				Expect(held).To(BeTrue())
			}
			time.Sleep(5 * time.Millisecond)
		}
		Eventually(session).Should(gexec.Exit(124))
		Expect(p.free("a")).To(BeTrue())
	})

	It("ends what the command has left", func() {
		session := p.begin("-k", "a", "--grace", "300ms", "--max-hold", "500ms", "--", "sh", "-c",
			`sh -c 'trap "" TERM; echo $$ >"$DIR/inner"; while :; do sleep 0.05; done' & wait`)
		inner := clitest.PidIn(filepath.Join(p.dir, "inner"))
		Eventually(session).Should(gexec.Exit(124))
		Expect(clitest.Alive(inner)).To(BeFalse())
	})

	It("tells of a lock that is lost while the command ends", func() {
		session := p.begin("-k", "a", "--ttl", "10s", "--grace", "5s", "--max-hold", "200ms", "--", "sh", "-c",
			`trap 'echo asked' TERM; while :; do sleep 0.05; done`)
		Eventually(session).Should(gbytes.Say("asked"))
		hanging.begin(p)
		Eventually(session, "15s").Should(gexec.Exit(76))
	})

	It("goes together with --at-least", func() {
		session := p.begin("-k", "a", "--max-hold", "300ms", "--at-least", "10m", "--", "sleep", "30")
		Eventually(session).Should(gexec.Exit(124))
		Expect(p.ttl("a")).To(BeNumerically(">", 9*time.Minute))
	})
})
