//go:build linux

package job_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("what has left the process group of the command", func() {
	var (
		ctx    context.Context
		client *redis.Client
		url    string
		dir    string
	)

	BeforeEach(func() {
		ctx = context.Background()
		server, c := clitest.NewServer()
		client, url = c, "redis://"+server.Addr()
		dir = GinkgoT().TempDir()
		DeferCleanup(func() { // also if the spec fails before it asks for the stray
			if text, err := os.ReadFile(filepath.Join(dir, "stray")); err == nil {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	})

	begin := func(args ...string) *gexec.Session {
		GinkgoHelper()
		cmd := clitest.Command([]string{"REDIS_URL=" + url, "DIR=" + dir, "R=" + clitest.Program()}, append([]string{"run"}, args...)...)
		session := clitest.Start(cmd)
		Eventually(session).Should(gbytes.Say("ready"))
		return session
	}
	stray := func() int {
		GinkgoHelper()
		return clitest.PidIn(filepath.Join(dir, "stray"))
	}
	lose := func(*gexec.Session) { client.Del(ctx, "a") }
	terminate := func(s *gexec.Session) { s.Terminate() }

	const (
		session  = `setsid sh -c 'echo $$ >"$DIR/stray"; exec sleep 60' >/dev/null 2>&1 & `
		daemon   = `(setsid sh -c 'sleep 60 & echo $! >"$DIR/stray"' >/dev/null 2>&1 &) ; `
		stubborn = `setsid sh -c 'trap "echo asked >\"$DIR/asked\"" TERM; echo $$ >"$DIR/stray"; while :; do sleep 0.05; done' ` +
			`>/dev/null 2>&1 & `
		wait = `while ! test -s "$DIR/stray"; do sleep 0.01; done; echo ready; `
	)

	DescribeTable("is ended",
		func(script string, end func(*gexec.Session), code int) {
			s := begin("-k", "a", "--ttl", "900ms", "--", "sh", "-c", script)
			pid := stray()
			Expect(clitest.Alive(pid)).To(BeTrue())
			end(s)
			Eventually(s).Should(gexec.Exit(code))
			Expect(clitest.Alive(pid)).To(BeFalse())
			Expect(clitest.Stderr(s)).NotTo(ContainSubstring("cannot"))
		},
		Entry("when the lock is lost: a session of its own", session+wait+"wait", lose, 76),
		Entry("when the lock is lost: a daemon", daemon+wait+"exec sleep 30", lose, 76),
		Entry("when the lock is lost: what ignores SIGTERM", stubborn+wait+"wait", lose, 76),
		Entry("when a signal ends the run: a session of its own", session+wait+"wait", terminate, 143),
		Entry("when a signal ends the run: a daemon", daemon+wait+"exec sleep 30", terminate, 143),
		Entry("when a signal ends the run: what ignores SIGTERM", stubborn+wait+"wait", terminate, 143),
		Entry("when the command handles the signal", daemon+`trap "exit 5" TERM; `+wait+"sleep 30 & wait", terminate, 5),
		Entry("when something else kills the command", session+wait+"sleep 0.3; kill -KILL $$", func(*gexec.Session) {}, 137),
	)

	It("gets SIGTERM before SIGKILL", func() {
		s := begin("-k", "a", "--ttl", "3s", "--", "sh", "-c", stubborn+wait+"wait") // SIGKILL follows when the validity ends
		lose(s)
		Expect(clitest.Written(filepath.Join(dir, "asked"))).To(Equal("asked"))
		Eventually(s).Should(gexec.Exit(76))
	})

	It("holds up the release of the locks until it has ended", func() {
		s := begin("-k", "a", "--ttl", "3s", "--grace", "500ms", "--", "sh", "-c", stubborn+wait+"wait")
		pid := stray()
		s.Terminate()
		for clitest.Alive(pid) {
			Expect(client.Exists(ctx, "a").Val()).To(Equal(int64(1)))
		}
		Eventually(s).Should(gexec.Exit(143))
		Expect(client.Exists(ctx, "a").Val()).To(BeZero())
	})

	It("goes on when the command has ended by itself", func() {
		s := begin("-k", "a", "--", "sh", "-c", session+wait)
		Eventually(s).Should(gexec.Exit(0))
		Consistently(clitest.Alive, "300ms").WithArguments(stray()).Should(BeTrue())
	})

	It("gets no second SIGTERM from the outer of two runs", func() {
		const inner = `trap "echo asked >>\"$DIR/asked\"; sleep 0.3; exit 7" TERM; echo $$ >"$DIR/stray"; echo ready; while :; do sleep 0.02; done`
		s := begin("-k", "a", "--", clitest.Program(), "run", "-k", "b", "--", "sh", "-c", inner)
		s.Terminate()
		Eventually(s).Should(gexec.Exit(7))
		Expect(clitest.Written(filepath.Join(dir, "asked"))).To(Equal("asked"))
		Expect(client.DBSize(ctx).Val()).To(BeZero())
	})

	It("leaves no zombies while the command runs", func() {
		s := begin("-k", "a", "--", "sh", "-c", `for i in 1 2 3 4 5; do (setsid sleep 0.05 &) ; done; sleep 0.4; echo ready; sleep 30`)
		out, err := exec.Command("ps", "-o", "stat=", "--ppid", fmt.Sprint(s.Command.Process.Pid)).Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).NotTo(ContainSubstring("Z"))
		s.Terminate()
		Eventually(s).Should(gexec.Exit(143))
	})

	It("belongs to another user, and is named", func() {
		if os.Getuid() != 0 {
			Skip("only root can start processes of several users")
		}
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			Skip(err.Error())
		}
		Expect(os.Chmod(dir, 0o777)).To(Succeed())
		program := filepath.Join(dir, "redislock") // nobody may not look into the directory of the build
		for from, to := range map[string]string{clitest.Program(): program, setpriv: filepath.Join(dir, "setpriv")} {
			Expect(exec.Command("cp", from, to).Run()).To(Succeed())
		}
		Expect(os.Chmod(filepath.Join(dir, "setpriv"), os.ModeSetuid|0o755)).To(Succeed()) // becomes root, as sudo does
		for up := filepath.Dir(dir); up != "/" && up != os.TempDir(); up = filepath.Dir(up) {
			Expect(os.Chmod(up, 0o755)).To(Succeed())
		}
		cmd := exec.Command(program, "run", "-k", "a", "--ttl", "900ms", "--", "sh", "-c",
			`"$DIR/setpriv" --reuid 0 --regid 0 --clear-groups sh -c 'echo $$ >"$DIR/stray"; echo ready; exec sleep 60' & wait`)
		cmd.Env = clitest.Environ("REDIS_URL="+url, "DIR="+dir)
		cmd.WaitDelay = 200 * time.Millisecond // the stray holds stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		s := clitest.Start(cmd)
		Eventually(s).Should(gbytes.Say("ready"))
		pid := stray()
		began := time.Now()
		lose(s)
		Eventually(s).Should(gexec.Exit(76))
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second)) // it does not wait for what it cannot end
		Expect(clitest.Stderr(s)).To(ContainSubstring(fmt.Sprintf(
			"redislock: cannot end process %d (sleep), which runs as another user; it goes on without the lock\n", pid)))
		Expect(clitest.Alive(pid)).To(BeTrue())
	})
})
