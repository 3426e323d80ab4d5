//go:build unix

package run

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/words"
)

func TestRun(t *testing.T) { clitest.RunSpecs(t, "run") }

var _ = Describe("redislock run", func() {
	var (
		ctx    context.Context
		server *redistest.Server
		client *redis.Client
		url    string
		dir    string
	)

	BeforeEach(func() {
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
		dir = GinkgoT().TempDir()
	})

	// run runs the program to its end, begin starts it.
	run := func(args ...string) *gexec.Session {
		GinkgoHelper()
		return clitest.Run(url, append([]string{"run"}, args...)...)
	}
	begin := func(args ...string) *gexec.Session {
		GinkgoHelper()
		return clitest.Start(clitest.Command([]string{"REDIS_URL=" + url, "DIR=" + dir}, append([]string{"run"}, args...)...))
	}
	// takeByAnother has somebody else hold keys.
	takeByAnother := func(keys ...string) *redislock.Lock {
		GinkgoHelper()
		lock, err := redislock.ObtainMulti(ctx, client, keys, time.Minute, &redislock.Options{
			Metadata: `{"host":"api-3","pid":4121,"user":"bob","command":"./ship 7"}`,
		})
		Expect(err).NotTo(HaveOccurred())
		return lock
	}
	free := func(keys ...string) bool { return client.Exists(ctx, keys...).Val() == 0 }
	written := func(name string) string { return clitest.Written(filepath.Join(dir, name)) }
	pidIn := func(name string) int { return clitest.PidIn(filepath.Join(dir, name)) }

	When("the keys are free", func() {
		It("runs the command while it holds them all, and releases them", func() {
			session := run("-k", "a", "-k", "b", "--", "sh", "-c", "redis-cli -p "+strconv.Itoa(server.Port())+" mget a b")
			Expect(session).To(gexec.Exit(0))
			lines := strings.Split(strings.TrimSpace(clitest.Stdout(session)), "\n")
			Expect(lines).To(HaveLen(2))
			Expect(lines[0]).To(MatchRegexp(`^[\w-]{22} {"host":.*,"pid":\d+,"user":"alice","command":"sh -c '.*'","since":".*Z"}$`))
			Expect(lines[1]).To(Equal(lines[0]))
			Expect(free("a", "b")).To(BeTrue())
			Expect(clitest.Stderr(session)).To(BeEmpty())
		})

		It("tells the command what it holds", func() {
			before := time.Now()
			session := run("-k", "a", "-k", "b", "--ttl", "7s", "--fence-key", "n", "--", "sh", "-c",
				`printf '%s|' "$REDISLOCK_KEYS" "$REDISLOCK_TOKEN" "$REDISLOCK_FENCE" "$REDISLOCK_UNTIL"`)
			told := strings.Split(clitest.Stdout(session), "|")
			Expect(told).To(HaveLen(5))
			Expect(told[0]).To(Equal("a\nb"))
			Expect(told[1]).To(MatchRegexp(`^[\w-]{22}$`))
			Expect(told[2]).To(Equal(client.Get(ctx, "n").Val()))
			until, err := time.Parse(time.RFC3339Nano, told[3])
			Expect(err).NotTo(HaveOccurred())
			Expect(until).To(BeTemporally(">", before.Add(6900*time.Millisecond)))
			Expect(until).To(BeTemporally("<", time.Now().Add(7*time.Second)))
		})

		It("does not pass on the fencing token of another run", func() {
			cmd := clitest.Command([]string{"REDIS_URL=" + url, "REDISLOCK_FENCE=7"}, "run", "-k", "a", "--", "env")
			session := clitest.Start(cmd)
			Eventually(session).Should(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(ContainSubstring("REDISLOCK_TOKEN="))
			Expect(clitest.Stdout(session)).NotTo(ContainSubstring("REDISLOCK_FENCE"))
		})

		It("passes stdin, stdout and stderr through", func() {
			session := clitest.RunWith(strings.NewReader("one\ntwo\n"), url, "run", "-k", "a", "sh", "-c", "cat; echo three >&2")
			Expect(clitest.Stdout(session)).To(Equal("one\ntwo\n"))
			Expect(clitest.Stderr(session)).To(Equal("three\n"))
		})

		It("leaves what --meta says", func() {
			get := []string{"redis-cli", "-p", strconv.Itoa(server.Port()), "get", "a"}
			session := run(append([]string{"-k", "a", "--meta", "job 7", "--token", "mine", "--"}, get...)...)
			Expect(clitest.Stdout(session)).To(Equal("mine job 7\n"))
			session = run(append([]string{"-k", "a", "--meta", "", "--token", "mine", "--"}, get...)...)
			Expect(clitest.Stdout(session)).To(Equal("mine\n"))
		})

		It("keeps them for longer than their ttl", func() {
			session := run("-k", "a", "--ttl", "300ms", "--", "sleep", "0.7")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stderr(session)).To(BeEmpty())
		})

		It("releases as soon as the command has ended, whatever that leaves in the background", func() {
			session := begin("-k", "a", "--", "sh", "-c", `sleep 30 >/dev/null 2>&1 & echo $! >"$DIR/left"`)
			Eventually(session).Should(gexec.Exit(0))
			left := pidIn("left")
			Expect(free("a")).To(BeTrue())
			Consistently(func() error { return syscall.Kill(left, 0) }, "200ms").Should(Succeed())
			Expect(syscall.Kill(left, syscall.SIGKILL)).To(Succeed())
		})
	})

	DescribeTable("ends with the exit code of the command",
		func(script string, code int) { Expect(run("-k", "a", "--", "sh", "-c", script)).To(gexec.Exit(code)) },
		Entry("success", "true", 0),
		Entry("a failure", "exit 7", 7),
		Entry("the last one", "exit 255", 255),
		Entry("SIGTERM", "kill -TERM $$", 143),
		Entry("SIGKILL", "kill -KILL $$", 137),
		Entry("a code that looks like SIGINT", "exit 130", 130),
	)

	It("runs a script without #!, as shells do", func() {
		script := filepath.Join(dir, "script")
		Expect(os.WriteFile(script, []byte("echo \"got $1\"\n"), 0o755)).To(Succeed())
		session := run("-k", "a", "--", script, "it")
		Expect(session).To(gexec.Exit(0))
		Expect(clitest.Stdout(session)).To(Equal("got it\n"))
	})

	It("says which KEYs are too many for the environment of the command, and releases them", func() {
		var args []string
		for i := range 3000 {
			args = append(args, "-k", strconv.Itoa(i)+strings.Repeat("x", 60))
		}
		if runtime.GOOS != "linux" {
			Skip("other systems bound all of the environment only")
		}
		session := run(append(args, "--", "true")...)
		Expect(session).To(gexec.Exit(126))
		Expect(clitest.Stderr(session)).To(Equal("redislock: cannot run \"true\": the KEYs are too long for the environment variable " +
			"REDISLOCK_KEYS; use fewer or shorter KEYs\n"))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	DescribeTable("refuses what it cannot do, in one line, before it locks anything",
		func(code int, words string, args ...string) {
			session := run(args...)
			Expect(session).To(gexec.Exit(code))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*\n$`))
			Expect(clitest.Stderr(session)).To(ContainSubstring(words))
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(client.Info(ctx, "commandstats").Val()).NotTo(ContainSubstring("cmdstat_eval"))
		},
		Entry("no key", 64, "name it with -k KEY", "--", "true"),
		Entry("no command", 64, "no COMMAND to run", "-k", "a"),
		Entry("an empty key", 64, "KEY 2 of 2 is empty", "-k", "a", "-k", "", "--", "true"),
		Entry("a reserved key", 64, "are reserved", "-k", "a:redislock:line", "--", "true"),
		Entry("a bad token", 64, "white space", "-k", "a", "--no-wait", "--fence-key", "a", "--token", "x y", "--", "true"),
		Entry("a key that can have no line", 64, "with --no-wait", "-k", "{a", "--", "true"),
		Entry("an empty token", 64, "--token is empty", "-k", "a", "--token", "", "--", "true"),
		Entry("a short ttl", 64, "--ttl 99ms is under 100ms", "-k", "a", "--ttl", "99ms", "--", "true"),
		Entry("no duration", 64, `"soon" is not a duration; write it like 30, 500ms, 1m30s or 2d`, "-k", "a", "--ttl", "soon", "--", "true"),
		Entry("a very long ttl", 64, "add --long if you want that", "-k", "a", "--ttl", "25h", "--", "true"),
		Entry("a long grace", 64, "more than half of --ttl", "-k", "a", "--ttl", "3s", "--grace", "2s", "--", "true"),
		Entry("both ways to wait", 64, "exclude each other", "-k", "a", "--wait", "1s", "--no-wait", "--", "true"),
		Entry("no time to wait", 64, "--wait -1s is negative", "-k", "a", "--wait", "-1", "--", "true"),
		Entry("no time to hold", 64, "--at-least 0s is not more than 0", "-k", "a", "--at-least", "0", "--", "true"),
		Entry("a very long time to hold", 64, "add --long if you want that", "-k", "a", "--at-least", "25h", "--", "true"),
		Entry("a negative limit", 64, "--max-hold -1s is not more than 0", "-k", "a", "--max-hold", "-1", "--", "true"),
		Entry("words and none", 64, "--quiet and --verbose exclude each other", "-k", "a", "-q", "-v", "--", "true"),
		Entry("--share alone", 64, "--share needs --token T", "-k", "a", "--share", "--", "true"),
		Entry("--reenter alone", 64, "REDISLOCK_TOKEN is not set", "-k", "a", "--reenter", "--", "true"),
		Entry("two tokens", 64, "--reenter and --token exclude each other", "-k", "a", "--reenter", "--token", "x", "--", "true"),
		Entry("an unknown log", 64, "write text or json", "-k", "a", "--log-format", "xml", "--", "true"),
		Entry("an exit code that is none", 64, "choose one from 0 to 255", "-k", "a", "-E", "256", "--", "true"),
		Entry("an unknown flag", 64, `unknown flag: --frob; run "redislock run --help"`, "-k", "a", "--frob", "--", "true"),
		Entry("an unknown command", 127, `cannot find the command "no-such-command"`, "-k", "a", "--", "no-such-command"),
		Entry("an unknown path", 127, `cannot find the command "/no/such/command"`, "-k", "a", "--", "/no/such/command"),
		Entry("a file that is no program", 126, "permission denied", "-k", "a", "--", "/etc/passwd"),
	)

	When("a key is taken", func() {
		It("says by whom, and leaves the others alone", func() {
			takeByAnother("b")
			session := run("-k", "a", "-k", "b", "--no-wait", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stdout(session)).To(BeEmpty())
			Expect(clitest.Stderr(session)).To(MatchRegexp(
				`^redislock: not acquired: "b" is held by bob@api-3, pid 4121 \(\./ship 7\), 5\ds left\n$`))
			Expect(free("a")).To(BeTrue())
		})

		It("ends with the exit code that -E gives, and silently with --quiet", func() {
			takeByAnother("a")
			session := run("-k", "a", "--no-wait", "-q", "-E", "75", "--", "true")
			Expect(session).To(gexec.Exit(75))
			Expect(clitest.Stderr(session)).To(BeEmpty())
		})

		It("waits in line for it, and runs then", func() {
			lock := takeByAnother("a")
			session := begin("-k", "a", "--", "echo", "ran")
			Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
			Consistently(session, "100ms").ShouldNot(gexec.Exit())
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(session).Should(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("ran\n"))
		})

		It("waits no longer than --wait", func() {
			takeByAnother("a")
			began := time.Now()
			session := run("-k", "a", "--wait", "300ms", "--", "echo", "ran")
			Expect(time.Since(began)).To(BeNumerically("~", 1100*time.Millisecond, 800*time.Millisecond))
			Expect(session).To(gexec.Exit(1))
			Expect(clitest.Stderr(session)).To(ContainSubstring(`not acquired within 300ms: "a" is held by bob`))
			Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(0)))
		})

		It("tells the time of the grant, and not that of the wait, in the metadata", func() {
			lock := takeByAnother("a")
			session := begin("-k", "a", "--", "redis-cli", "-p", strconv.Itoa(server.Port()), "get", "a")
			Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
			time.Sleep(1100 * time.Millisecond)
			granted := time.Now()
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(session).Should(gexec.Exit(0))
			_, metadata, _ := strings.Cut(clitest.Stdout(session), " ")
			fields, _ := words.Fields(metadata)
			since, err := time.Parse(time.RFC3339Nano, words.Value(fields, "since"))
			Expect(err).NotTo(HaveOccurred())
			Expect(since).To(BeTemporally(">=", granted.Truncate(time.Millisecond)))
			var names []string
			for _, f := range fields {
				names = append(names, f.Name)
			}
			Expect(names).To(Equal([]string{"host", "pid", "user", "command", "since"}))
		})

		DescribeTable("a signal ends the waiting, and gives up the position in line",
			func(sig syscall.Signal) {
				takeByAnother("a")
				session := begin("-k", "a", "--", "echo", "ran")
				Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
				session.Signal(sig)
				Eventually(session).Should(gexec.Exit(128 + int(sig)))
				Expect(clitest.Stdout(session)).To(BeEmpty())
				Expect(clitest.Stderr(session)).To(BeEmpty())
				Expect(client.Exists(ctx, "a{a}:redislock:line").Val()).To(BeZero())
			},
			Entry("SIGTERM", syscall.SIGTERM), Entry("SIGINT", syscall.SIGINT), Entry("SIGHUP", syscall.SIGHUP),
			Entry("SIGQUIT", syscall.SIGQUIT), Entry("SIGUSR1", syscall.SIGUSR1), Entry("SIGALRM", syscall.SIGALRM),
		)

		// listening reports whether somebody is in line, has had the answer that says so, and has subscribed since. Package
		// spec of the library has the like, but works only in the library's own module.
		listening := func(line string) bool {
			marks := client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: line, Start: "-inf", Stop: "(0", ByScore: true}).Val()
			return len(marks) == 1 && int(-marks[0].Score)%2 == 1
		}

		It("waits on while Redis is away, once it is in line", func() {
			takeByAnother("a")
			session := begin("-k", "a", "--ttl", "5s", "--", "echo", "ran")
			Eventually(listening).WithArguments("a{a}:redislock:line").Should(BeTrue())
			Expect(server.Kill()).To(Succeed())
			Consistently(session, "1200ms").ShouldNot(gexec.Exit())
			Expect(server.Restart()).To(Succeed()) // it has forgotten the lock
			Eventually(session, "10s").Should(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("ran\n"))
		})

		It("calls Redis unreachable if that is away when the waiting ends", func() {
			takeByAnother("a")
			session := begin("-k", "a", "--wait", "400ms", "--", "echo", "ran")
			Eventually(listening).WithArguments("a{a}:redislock:line").Should(BeTrue())
			Expect(server.Kill()).To(Succeed())
			Eventually(session, "10s").Should(gexec.Exit(69))
			Expect(clitest.Stdout(session)).To(BeEmpty())
		})
	})

	It("serves those who wait in the order in which they came", func() {
		holder := takeByAnother("a")
		var waiting []*gexec.Session
		for i := range 4 {
			waiting = append(waiting, begin("-k", "a", "--", "sh", "-c", "echo "+strconv.Itoa(i)+` >>"$DIR/order"`))
			Eventually(func() int {
				statuses, err := redislock.New(client).Inspect(ctx, "a")
				Expect(err).NotTo(HaveOccurred())
				return statuses[0].Waiters
			}).Should(Equal(i + 1))
		}
		Expect(holder.Release(ctx)).To(Succeed())
		for _, session := range waiting {
			Eventually(session).Should(gexec.Exit(0))
		}
		Expect(written("order")).To(Equal("0\n1\n2\n3"))
	})

	Describe("a lock that is lost", func() {
		// A command that says when it gets SIGTERM, and goes on.
		const stubborn = `trap 'date +%s%N >"$DIR/term"' TERM; echo $$ >"$DIR/pid"; echo ready; ` +
			`while :; do sleep 0.05; date +%s%N >"$DIR/next"; mv "$DIR/next" "$DIR/last"; done` // never half written
		at := func(name string) time.Time {
			GinkgoHelper()
			nanos, err := strconv.ParseInt(written(name), 10, 64)
			Expect(err).NotTo(HaveOccurred())
			return time.Unix(0, nanos)
		}

		It("ends the command at once if the key is deleted", func() {
			session := begin("-k", "a", "-k", "b", "--ttl", "900ms", "--", "sh", "-c", "echo ready; exec sleep 30")
			Eventually(session).Should(gbytes.Say("ready"))
			Expect(client.Del(ctx, "b").Err()).To(Succeed())
			Eventually(session).Should(gexec.Exit(76))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: the lock is lost, so the command is ended: lost 1 of 2 keys.*"b"\n$`))
			Expect(free("a")).To(BeTrue())
		})

		It("leaves the key to its new holder, and ends with the code that is wanted", func() {
			session := begin("-k", "a", "--ttl", "900ms", "--lost-exit-code", "42", "--", "sh", "-c", "echo ready; exec sleep 30")
			Eventually(session).Should(gbytes.Say("ready"))
			Expect(client.Set(ctx, "a", "another", 0).Err()).To(Succeed())
			Eventually(session).Should(gexec.Exit(42))
			Expect(clitest.Stderr(session)).To(ContainSubstring(`another holder has "a"`))
			Expect(client.Get(ctx, "a").Val()).To(Equal("another"))
		})

		It("gives the command the grace period, and kills its whole group then", func() {
			// A busy machine takes from the grace what it is held up for longer than this ttl leaves, and the command notes
			// its last moment late.
			session := begin("-k", "a", "--ttl", "4500ms", "--grace", "1500ms", "--", "sh", "-c", `sleep 30 & echo $! >"$DIR/inner"; `+stubborn)
			Eventually(session).Should(gbytes.Say("ready"))
			inner := pidIn("inner")
			client.Del(ctx, "a")
			Eventually(session, "6s").Should(gexec.Exit(76))
			Expect(at("last").Sub(at("term"))).To(BeNumerically("~", 1400*time.Millisecond, 300*time.Millisecond))
			Expect(clitest.Alive(inner)).To(BeFalse())
		})

		It("ends what the command has left of its group, too", func() {
			session := begin("-k", "a", "--ttl", "900ms", "--", "sh", "-c",
				`sh -c 'trap "" TERM; echo $$ >"$DIR/inner"; sleep 30; sleep 30' & sleep 0.2; echo ready; wait`)
			Eventually(session).Should(gbytes.Say("ready"))
			inner := pidIn("inner")
			client.Del(ctx, "a")
			Eventually(session).Should(gexec.Exit(76))
			Eventually(func() bool { return clitest.Alive(inner) }).Should(BeFalse())
		})

		// A machine that is held up for a quarter of a second takes that from the grace.
		DescribeTable("ends the command before the lock ends, when Redis", FlakeAttempts(3),
			func(away func() error, words string) {
				began := time.Now()
				session := begin("-k", "a", "--ttl", "1500ms", "--grace", "500ms", "--", "sh", "-c", stubborn)
				Eventually(session).Should(gbytes.Say("ready"))
				Expect(away()).To(Succeed())
				lost := time.Now()
				Eventually(filepath.Join, "10s").WithArguments(dir, "term").Should(BeAnExistingFile())
				asked := time.Now()
				Eventually(clitest.Alive).WithArguments(pidIn("pid")).Should(BeFalse())
				Expect(time.Since(asked)).To(BeNumerically("~", 500*time.Millisecond, 200*time.Millisecond))
				Eventually(session, "10s").Should(gexec.Exit(76))
				term, last := at("term"), at("last")
				Expect(term).To(BeTemporally(">", began.Add(800*time.Millisecond))) // not before it has to
				Expect(last).To(BeTemporally("<", lost.Add(1500*time.Millisecond)))
				Expect(clitest.Stderr(session)).To(MatchRegexp(`(?m)^redislock: the lock could not be renewed, so the command is ended: .+$`))
				Expect(clitest.Stderr(session)).To(ContainSubstring(words))
			},
			Entry("hangs", func() error { return server.Pause() }, "no answer from Redis"),
			Entry("is gone", func() error { return server.Kill() }, "refused"),
		)

		It("ends the command in time also if nobody reads stderr", func() {
			read, write, err := os.Pipe()
			Expect(err).NotTo(HaveOccurred())
			defer read.Close()
			Expect(write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))).To(Succeed())
			_, err = write.Write(make([]byte, 1<<20)) // it is full now
			Expect(err).To(MatchError(os.ErrDeadlineExceeded))
			cmd := clitest.Command([]string{"REDIS_URL=" + url, "DIR=" + dir}, "run", "-k", "a", "--ttl", "900ms", "--", "sh", "-c", stubborn)
			cmd.Stderr = write
			Expect(cmd.Start()).To(Succeed())
			Expect(write.Close()).To(Succeed())
			pid := pidIn("pid")
			client.Del(ctx, "a")
			Eventually(clitest.Alive, "2s").WithArguments(pid).Should(BeFalse())
			_ = cmd.Wait()
			Expect(cmd.ProcessState.ExitCode()).To(Equal(76))
		})

		It("goes on if Redis comes back in time", func() {
			session := begin("-k", "a", "--ttl", "1500ms", "--grace", "300ms", "--", "sh", "-c", "echo ready; sleep 1.8; echo done")
			Eventually(session).Should(gbytes.Say("ready"))
			Expect(server.Pause()).To(Succeed())
			time.Sleep(700 * time.Millisecond) // a renewal is due at 500 ms
			Expect(server.Resume()).To(Succeed())
			Eventually(session, "6s").Should(gexec.Exit(0))
			Expect(session).To(gbytes.Say("done"))
			Expect(clitest.Stderr(session)).To(BeEmpty())
		})

		It("is noticed at once after redislock was stopped for longer than the ttl", func() {
			session := begin("-k", "a", "--ttl", "600ms", "--", "sh", "-c", stubborn)
			Eventually(session).Should(gbytes.Say("ready"))
			session.Signal(syscall.SIGSTOP)
			time.Sleep(900 * time.Millisecond)
			Expect(free("a")).To(BeTrue())
			session.Signal(syscall.SIGCONT)
			Eventually(session, "500ms").Should(gexec.Exit(76))
			Expect(clitest.Stderr(session)).To(ContainSubstring("the lease ran out unrenewed"))
			Expect(clitest.Alive(pidIn("pid"))).To(BeFalse())
		})

		It("is told although the command has ended well meanwhile", func() {
			session := run("-k", "a", "--", "redis-cli", "-p", strconv.Itoa(server.Port()), "del", "a")
			Expect(session).To(gexec.Exit(76))
			Expect(clitest.Stderr(session)).To(ContainSubstring("the lock was lost before the command ended"))
		})
	})

	Describe("--share", func() {
		// inner is a run inside of another one.
		inner := func(args ...string) []string {
			return append([]string{clitest.Program(), "run", "--reenter"}, args...)
		}

		It("re-enters a hold, and neither shortens nor releases it", func() {
			lock, err := redislock.ObtainMulti(ctx, client, []string{"a", "b"}, time.Minute, &redislock.Options{Token: "the-token", Metadata: "outer"})
			Expect(err).NotTo(HaveOccurred())
			session := run("-k", "a", "-k", "b", "--token", "the-token", "--share", "--ttl", "300ms", "--", "sh", "-c", `sleep 0.5; echo "$REDISLOCK_TOKEN"`)
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("the-token\n"))
			left, err := lock.TTL(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(left).To(BeNumerically("~", 58*time.Second, 2*time.Second))
			Expect(client.Get(ctx, "a").Val()).To(Equal("the-token outer"))
		})

		It("goes on for as long as its holder renews it", func() {
			session := run(append([]string{"-k", "a", "--ttl", "2s", "--token", "the-token", "--"}, inner("-k", "a", "--", "sleep", "2.5")...)...)
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stderr(session)).To(BeEmpty())
		})

		It("re-enters a hold without expiry, and ends when that was given one and then expires", func() {
			_, err := redislock.Obtain(ctx, client, "a", time.Minute, &redislock.Options{Token: "the-token"})
			Expect(err).NotTo(HaveOccurred())
			Expect(client.Persist(ctx, "a").Val()).To(BeTrue())
			session := begin("-k", "a", "--token", "the-token", "--share", "--", "sh", "-c", "echo ready; sleep 30")
			Eventually(session).Should(gbytes.Say("ready"))
			Consistently(session, "1500ms").ShouldNot(gexec.Exit())
			Expect(client.PExpire(ctx, "a", time.Second).Err()).To(Succeed())
			Eventually(session, "10s").Should(gexec.Exit(76))
		})

		It("releases only what it has taken itself", func() {
			port := strconv.Itoa(server.Port())
			session := run("-k", "a", "--token", "the-token", "--meta", "", "--", "sh", "-c",
				strings.Join(inner("-k", "a", "-k", "b", "--meta", "''", "--", "redis-cli", "-p", port, "mget", "a", "b"), " ")+
					" && redis-cli -p "+port+" mget a b")
			Expect(session).To(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("the-token\nthe-token\nthe-token\n\n"))
			Expect(free("a", "b")).To(BeTrue())
		})

		It("waits in line for what another has", func() {
			lock := takeByAnother("b")
			session := begin(append([]string{"-k", "a", "--token", "the-token", "--"}, inner("-k", "a", "-k", "b", "--", "echo", "both")...)...)
			Eventually(client.Exists).WithArguments(ctx, "b{b}:redislock:line").Should(HaveField("Val()", int64(1)))
			Expect(lock.Release(ctx)).To(Succeed())
			Eventually(session).Should(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(Equal("both\n"))
		})

		It("gives up its position in line when the hold that it re-entered is lost", func() {
			takeByAnother("b")
			Expect(client.Set(ctx, "a", "the-token", time.Minute).Err()).To(Succeed())
			session := begin("-k", "a", "-k", "b", "--token", "the-token", "--share", "--", "echo", "both")
			Eventually(client.Exists).WithArguments(ctx, "b{b}:redislock:line").Should(HaveField("Val()", int64(1)))
			client.Del(ctx, "a")
			Eventually(session).Should(gexec.Exit(1))
			Expect(clitest.Stdout(session)).To(BeEmpty())
		})

		It("ends the command when the hold that it re-entered is lost", func() {
			Expect(client.Set(ctx, "a", "the-token", time.Minute).Err()).To(Succeed())
			session := begin("-k", "a", "-k", "b", "--token", "the-token", "--share", "--", "sh", "-c", "echo ready; exec sleep 30")
			Eventually(session).Should(gbytes.Say("ready"))
			client.Del(ctx, "a")
			Eventually(session).Should(gexec.Exit(76))
			Expect(clitest.Stderr(session)).To(ContainSubstring("the hold that was re-entered is gone"))
			Expect(free("b")).To(BeTrue())
		})

		It("ends the command before a hold ends that nobody renews", func() {
			began := time.Now()
			Expect(client.Set(ctx, "a", "the-token", 4*time.Second).Err()).To(Succeed())
			session := begin("-k", "a", "--token", "the-token", "--share", "--", "sleep", "30")
			Eventually(session).WithTimeout(10 * time.Second).Should(gexec.Exit(76))
			Expect(time.Since(began)).To(BeNumerically("~", 3200*time.Millisecond, 800*time.Millisecond))
			Expect(clitest.Stderr(session)).To(ContainSubstring("its holder does not renew it"))
		})
	})

	Describe("Redis", func() {
		It("that cannot be reached is told in time", func() {
			Expect(server.Kill()).To(Succeed())
			began := time.Now()
			session := run("-k", "a", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(69))
			Expect(time.Since(began)).To(BeNumerically("<", 5*time.Second))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*` + server.Addr() + `.*refused.*\n$`))
			Expect(run("-k", "a", "--unavailable-exit-code", "99", "--", "true")).To(gexec.Exit(99))
		})

		It("that does not answer is told in time", func() {
			Expect(server.Pause()).To(Succeed())
			began := time.Now()
			session := clitest.Run(url+"?read_timeout=500ms", "run", "-k", "a", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(69))
			Expect(time.Since(began)).To(BeNumerically("<", 5*time.Second))
			Expect(clitest.Stderr(session)).To(ContainSubstring("no answer within"))
		})

		It("that wants another password is told, without the password", func() {
			secured, _ := clitest.NewServer("requirepass right")
			session := clitest.Run("redis://:wrong@"+secured.Addr(), "run", "-k", "a", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(69))
			Expect(clitest.Stderr(session)).To(ContainSubstring("user or password is wrong"))
			Expect(clitest.Stderr(session)).NotTo(ContainSubstring("wrong@"))
		})

		It("whose URL cannot be read is told, without the password", func() {
			session := clitest.Run("redis://:se%cret@host", "run", "-k", "a", "--", "echo", "ran")
			Expect(session).To(gexec.Exit(64))
			Expect(clitest.Stderr(session)).To(MatchRegexp(`^redislock: .*\n$`))
			Expect(clitest.Stderr(session)).NotTo(ContainSubstring("cret"))
		})
	})
})
