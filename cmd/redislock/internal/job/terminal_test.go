//go:build unix

package job_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/testing/redistest"
)

var _ = Describe("at a terminal", func() {
	var (
		ctx    context.Context
		server *redistest.Server
		client *redis.Client
		url    string
	)

	BeforeEach(func() {
		ctx = context.Background()
		server, client = clitest.NewServer()
		url = "redis://" + server.Addr()
	})

	free := func() bool { return client.Exists(ctx, "a").Val() == 0 }

	It("Ctrl-C reaches the command, which may live on", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a -- sh -c 'trap "echo caught; exit 4" INT; echo started; while :; do sleep 0.05; done'; echo code $?` + "\n")
		user.Sees("started")
		user.Types(clitest.CtrlC)
		user.Sees("caught\r\n")
		user.Sees("code 4\r\n")
		Expect(free()).To(BeTrue())
	})

	It("Ctrl-C ends the command, the run and the loop of the shell", func() {
		user := clitest.NewTypist(url)
		user.Types(`for i in 1 2 3; do $R run -k a -- sh -c 'echo started; exec sleep 30'; done` + "\n")
		user.Sees("started")
		user.Types(clitest.CtrlC)
		user.Types("echo code $?\n")
		user.Sees("code 130\r\n")
		Expect(strings.Count(string(user.Screen.Contents()), "started")).To(Equal(1))
		Expect(free()).To(BeTrue())
	})

	It("Ctrl-C ends the script around the run", func() {
		user := clitest.NewTypist(url)
		user.Types(`sh -c '$R run -k a -- sh -c "echo started; exec sleep 30"; echo more'; echo code $?` + "\n")
		user.Sees("started\r\n")
		user.Types(clitest.CtrlC)
		user.Types("echo code $?\n")
		user.Sees("code 130\r\n")
		Expect(string(user.Screen.Contents())).NotTo(ContainSubstring("more"))
	})

	It("Ctrl-Z has no effect where no shell could go on with the run", func() {
		cmd := exec.Command(clitest.Program(), "run", "-k", "a", "--", "sh", "-c", `echo started; read x; echo "got $x"`)
		cmd.Env = append(os.Environ(), "REDIS_URL="+url)
		user := clitest.NewTypistIn(cmd)
		user.Sees("started\r\n")
		user.Types(clitest.CtrlZ)
		time.Sleep(200 * time.Millisecond) // in which it could have one
		user.Types("this\n")
		user.Sees("got this\r\n")
		Eventually(free).Should(BeTrue())
	})

	It("Ctrl-C ends the waiting, and leaves the line", func() {
		_, err := redislock.Obtain(ctx, client, "a", time.Minute, nil)
		Expect(err).NotTo(HaveOccurred())
		user := clitest.NewTypist(url)
		user.Types("$R run -k a -- echo ran\n")
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
		user.Types(clitest.CtrlC)
		user.Types("echo code $?\n")
		user.Sees("code 130\r\n")
		Expect(client.Exists(ctx, "a{a}:redislock:line").Val()).To(BeZero())
	})

	It("the command can read what is typed", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a -- sh -c 'echo ask; read x; echo "got $x"'; echo code $?` + "\n")
		user.Sees("ask\r\n")
		user.Types("this\n")
		user.Sees("got this\r\n")
		user.Sees("code 0\r\n")
	})

	It("the command can read what is typed while its output goes into a pipe", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a -- sh -c 'echo ask; read x; echo "got $x"' | cat` + "\n")
		user.Sees("ask\r\n")
		user.Types("this\n")
		user.Sees("got this\r\n")
		user.Types("echo next\n")
		user.Sees("next\r\n")
	})

	It("a reader of the output keeps the terminal until the command needs it", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a -- sh -c 'echo out; exec sleep 1' | sh -c 'read x; echo "$x"; read x </dev/tty; echo "read $x"'` + "\n")
		user.Sees("out\r\n")
		user.Types("this\n")
		user.Sees("read this\r\n")
	})

	It("Ctrl-Z stops the command and the run, and fg goes on with both", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a --ttl 5s -- sh -c 'echo started; read x; echo "got $x"'; echo code $?` + "\n")
		user.Sees("started\r\n")
		user.Types(clitest.CtrlZ)
		user.Sees("Stopped")
		user.Sees("code 147\r\n")
		Expect(free()).To(BeFalse())
		user.Types("echo the shell lives\n")
		user.Sees("the shell lives\r\n")
		user.Types("fg; echo code $?\n")
		user.Types("this\n")
		user.Sees("got this\r\n")
		user.Sees("code 0\r\n")
		Expect(free()).To(BeTrue())
	})

	// Here the command is a bash. Some other shells start commands with vfork: a Ctrl-Z in that moment stops the new
	// process, and the shell hangs until that goes on, under any parent.
	It("bg goes on in the background, and a command that needs the terminal stops until fg", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a -- bash -c 'echo started; sleep 0.5; echo reading; read x; echo "got $x"'` + "\n")
		user.Sees("started\r\n")
		user.Types(clitest.CtrlZ)
		user.Sees("Stopped")
		user.Types("bg\n")
		user.Sees("reading\r\n")
		user.Types("echo the shell lives\n")
		user.Sees("the shell lives\r\n")
		Eventually(func() string {
			user.Types("jobs\n")
			time.Sleep(50 * time.Millisecond) // until the shell has answered
			return string(user.Screen.Contents())
		}).Should(MatchRegexp(`(?s)reading.*Stopped`))
		user.Types("fg\n")
		time.Sleep(200 * time.Millisecond) // or the shell would take the next line for its own
		user.Types("this\n")
		user.Sees("got this\r\n")
	})

	It("Ctrl-Z for longer than the ttl loses the lock, and the command is ended", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a --ttl 500ms -- bash -c 'trap "echo woken" CONT; echo started; while :; do sleep 0.05; done'; echo code $?` + "\n")
		user.Sees("started\r\n")
		user.Types(clitest.CtrlZ)
		user.Sees("Stopped")
		user.Sees("code 147\r\n")
		Eventually(free).Should(BeTrue())
		user.Types("fg; echo code $?\n")
		user.Sees("the lock is lost, so the command is ended: the lease ran out unrenewed")
		user.Sees("code 76\r\n")
		Expect(string(user.Screen.Contents())).NotTo(ContainSubstring("\nwoken")) // nobody else's lock was touched
	})

	It("the shell has the terminal again after the command was killed", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a -- sh -c 'echo started $$; exec sleep 30'; echo code $?` + "\n")
		user.Sees(`started \d+\r\n`)
		_, after, _ := strings.Cut(string(user.Screen.Contents()), "started ")
		pid, err := strconv.Atoi(strings.TrimSpace(after))
		Expect(err).NotTo(HaveOccurred())
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		user.Sees("code 137\r\n")
		user.Types("read x; echo \"read $x\"\nthis\n")
		user.Sees("read this\r\n")
	})

	It("a script without job control has the terminal again after the run", func() {
		user := clitest.NewTypist(url)
		user.Types(`sh -c '$R run -k a -- true; echo ask; read x; echo "read $x"'` + "\n")
		user.Sees("ask\r\n")
		user.Types("this\n")
		user.Sees("read this\r\n")
	})

	It("a script has the terminal again after a command that could not be started", func() {
		user := clitest.NewTypist(url)
		bad := GinkgoT().TempDir() + "/bad"
		Expect(os.WriteFile(bad, []byte("#!/no/such/interpreter\n"), 0o755)).To(Succeed())
		user.Types(`sh -c '$R run -k a -- ` + bad + `; echo code $?; read x; echo "read $x"'` + "\n")
		user.Sees(`code 12[67]\r\n`)
		user.Types("this\n")
		user.Sees("read this\r\n")
		Expect(free()).To(BeTrue())
	})

	It("hanging up ends the command, and releases the lock", func() {
		user := clitest.NewTypist(url)
		user.Types(`$R run -k a --ttl 1m -- sh -c 'echo started; exec sleep 30'` + "\n")
		user.Sees("started\r\n")
		Expect(user.Shell.Process.Kill()).To(Succeed()) // with the leader of its session, the terminal is gone
		Eventually(free).Should(BeTrue())
	})

	It("two contend: the second runs when the first is ended", func() {
		first, second := clitest.NewTypist(url), clitest.NewTypist(url)
		first.Types(`$R run -k a -- sh -c 'echo "first started"; exec sleep 30'` + "\n")
		first.Sees("first started\r\n")
		second.Types(`$R run -k a --no-wait -- echo never; echo code $?` + "\n")
		second.Sees(`redislock: not acquired: "a" is held by alice@.* \(sh -c .*\)`)
		second.Sees("code 1\r\n")
		second.Types(`$R run -k a -- echo second started; echo code $?` + "\n")
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
		first.Types(clitest.CtrlC)
		second.Sees("second started\r\n")
		second.Sees("code 0\r\n")
	})
})
