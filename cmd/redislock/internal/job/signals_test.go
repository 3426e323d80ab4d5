//go:build unix

package job_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
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

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

// The specs run redislock run, which runs its command as a job.
func TestJob(t *testing.T) { clitest.RunSpecs(t, "job") }

var _ = Describe("signals", func() {
	var (
		ctx    context.Context
		client *redis.Client
		url    string
		dir    string
	)

	BeforeEach(func() {
		var server *redistest.Server
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
		dir = GinkgoT().TempDir()
	})

	begin := func(args ...string) *gexec.Session {
		GinkgoHelper()
		return clitest.Start(clitest.Command([]string{"REDIS_URL=" + url, "DIR=" + dir}, append([]string{"run"}, args...)...))
	}
	free := func(keys ...string) bool { return client.Exists(ctx, keys...).Val() == 0 }
	pidIn := func(name string) int { return clitest.PidIn(filepath.Join(dir, name)) }

	DescribeTable("reach the whole process group of the command",
		func(sig syscall.Signal, name string) {
			session := begin("-k", "a", "--", "sh", "-c",
				`sh -c 'trap "echo inner; exit 0" `+name+`; echo ready; while :; do sleep 0.05; done' & `+
					`trap "wait; exit 5" `+name+`; wait; wait`)
			Eventually(session).Should(gbytes.Say("ready"))
			session.Signal(sig)
			Eventually(session).Should(gexec.Exit(5))
			Expect(session).To(gbytes.Say("inner"))
			Expect(free("a")).To(BeTrue())
		},
		Entry("SIGTERM", syscall.SIGTERM, "TERM"), Entry("SIGHUP", syscall.SIGHUP, "HUP"),
		Entry("SIGUSR1", syscall.SIGUSR1, "USR1"), Entry("SIGUSR2", syscall.SIGUSR2, "USR2"),
	) // not SIGINT and SIGQUIT, which sh has its background ignore

	It("SIGINT reaches the command", func() {
		session := begin("-k", "a", "--", "sh", "-c", "echo ready; exec sleep 30")
		Eventually(session).Should(gbytes.Say("ready"))
		session.Signal(syscall.SIGINT)
		Eventually(session).Should(gexec.Exit(130))
		Expect(free("a")).To(BeTrue())
	})

	It("that the command survives leave the lock alone", func() {
		session := begin("-k", "a", "--ttl", "500ms", "--", "sh", "-c", `trap "echo got" TERM; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done`)
		Eventually(session).Should(gbytes.Say("ready"))
		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gbytes.Say("got"))
		Expect(free("a")).To(BeFalse())
		Eventually(session).Should(gexec.Exit(0))
	})

	DescribeTable("that are ignored at the start stay so, for the command as well",
		func(name string, sig syscall.Signal, before, after string) {
			cmd := clitest.Command([]string{"REDIS_URL=" + url, "BINARY=" + clitest.Program(), "DIR=" + dir})
			cmd.Path = "/bin/sh"
			cmd.Args = []string{"sh", "-c", before + ` "$BINARY" run -k a -- sh -c 'echo $$ >"$DIR/command"; echo $PPID >"$DIR/pid"; ` +
				`kill -` + name + ` $$; sleep 0.5; echo done' ` + after}
			session := clitest.Start(cmd)
			Expect(syscall.Kill(pidIn("pid"), sig)).To(Succeed())
			Expect(syscall.Kill(-pidIn("command"), sig)).To(Succeed())
			Eventually(session).Should(gexec.Exit(0))
			Expect(session).To(gbytes.Say("done"))
			Expect(free("a")).To(BeTrue())
		},
		Entry("under nohup", "HUP", syscall.SIGHUP, "exec nohup", ""),
		Entry("in the background of a script", "INT", syscall.SIGINT, "", "& wait $!"),
	)

	It("that these specs ignore, as under nohup, do not reach what they start", func() {
		// In a process of its own: one that has ignored a signal and catches it cannot go back to the default.
		const inside = "REDISLOCK_TEST_IGNORING"
		if os.Getenv(inside) == "" {
			again := exec.Command("sh", "-c", `trap "" HUP INT QUIT PIPE; exec "$0" -test.run='^TestJob$' -ginkgo.focus='these specs ignore'`,
				os.Args[0])
			again.Env = append(os.Environ(), inside+"=1")
			Eventually(clitest.Start(again)).WithTimeout(time.Minute).Should(gexec.Exit(0))
			return
		}
		Expect(signal.Ignored(syscall.SIGHUP)).To(BeTrue())
		for name, code := range map[string]int{"HUP": 129, "INT": 130, "QUIT": 131, "PIPE": 141, "TERM": 143} {
			script := fmt.Sprintf("sh -c 'kill -%s $$; echo alive'; echo code $?", name)
			session := clitest.Start(exec.Command("sh", "-c", script))
			Eventually(session).Should(gexec.Exit(0))
			Expect(clitest.Stdout(session)).To(HaveSuffix(fmt.Sprintln("code", code)), name)
			clitest.NewTypistIn(exec.Command("sh", "-c", script)).Sees(fmt.Sprint("code ", code))
		}
	})

	It("SIGKILL of the command releases the lock", func() {
		session := begin("-k", "a", "--", "sh", "-c", `echo $$ >"$DIR/pid"; exec sleep 30`)
		Expect(syscall.Kill(pidIn("pid"), syscall.SIGKILL)).To(Succeed())
		Eventually(session).Should(gexec.Exit(137))
		Expect(free("a")).To(BeTrue())
	})

	It("SIGKILL of redislock ends the command, and what that has started", func() {
		session := begin("-k", "a", "--ttl", "600ms", "--", "sh", "-c", `sleep 30 & echo $! >"$DIR/inner"; echo $$ >"$DIR/pid"; wait`)
		pid, inner := pidIn("pid"), pidIn("inner")
		time.Sleep(100 * time.Millisecond) // for the guardian to be there
		session.Kill()
		for _, p := range []int{pid, inner} {
			Eventually(func() bool { return clitest.Alive(p) }).Should(BeFalse())
		}
		Eventually(func() bool { return free("a") }).Should(BeTrue()) // by its ttl
	})

	It("SIGKILL of redislock ends the command also without the guardian, on Linux", func() {
		if runtime.GOOS != "linux" {
			Skip("only Linux has Pdeathsig")
		}
		session := begin("-k", "a", "--ttl", "2s", "--", "sh", "-c", `echo $$ >"$DIR/pid"; sleep 30`)
		pid := pidIn("pid")
		var guardian int
		Eventually(func() (err error) {
			out, _ := exec.Command("pgrep", "-f", "redislock-guard "+strconv.Itoa(pid)).Output()
			guardian, err = strconv.Atoi(strings.TrimSpace(string(out)))
			return err
		}).Should(Succeed())
		Expect(syscall.Kill(guardian, syscall.SIGKILL)).To(Succeed())
		session.Kill()
		Eventually(func() bool { return clitest.Alive(pid) }).Should(BeFalse())
	})
})
