//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/redistest"
)

// typist is somebody at a terminal, in a shell with job control that echoes nothing.
type typist struct {
	shell    *exec.Cmd
	keyboard *os.File
	screen   *gbytes.Buffer
}

// newTypist opens a terminal. The variable R is the program.
func newTypist(url string) *typist {
	GinkgoHelper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		Skip(err.Error())
	}
	cmd := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
	cmd.Env = append(os.Environ(), "R="+binary, "REDIS_URL="+url, "PS1=", "PS2=", "TERM=xterm", "HISTFILE=", "USER=alice")
	t := newTypistIn(cmd)
	t.types("stty -echo; echo rea''dy\n")
	t.sees("ready\r\n")
	return t
}

// newTypistIn opens a terminal in which a program runs.
func newTypistIn(cmd *exec.Cmd) *typist {
	GinkgoHelper()
	keyboard, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 200})
	Expect(err).NotTo(HaveOccurred())
	t := &typist{cmd, keyboard, gbytes.NewBuffer()}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.MultiWriter(t.screen, GinkgoWriter), keyboard)
	}()
	DeferCleanup(func() {
		_ = cmd.Process.Kill()
		_ = keyboard.Close() // hangs up, so that jobs end
		_ = cmd.Wait()
		<-read
	})
	return t
}

func (t *typist) types(text string) {
	GinkgoHelper()
	_, err := t.keyboard.WriteString(text)
	Expect(err).NotTo(HaveOccurred())
}

// sees waits for what matches, after all that was seen before.
func (t *typist) sees(expression string) {
	GinkgoHelper()
	Eventually(t.screen).Should(gbytes.Say(expression))
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"

	ctrlBackslash = "\x1c"
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
		server, client = newServer()
		url = "redis://" + server.Addr()
	})

	free := func() bool { return client.Exists(ctx, "a").Val() == 0 }

	It("Ctrl-C reaches the command, which may live on", func() {
		user := newTypist(url)
		user.types(`$R run -k a -- sh -c 'trap "echo caught; exit 4" INT; echo started; while :; do sleep 0.05; done'; echo code $?` + "\n")
		user.sees("started")
		user.types(ctrlC)
		user.sees("caught\r\n")
		user.sees("code 4\r\n")
		Expect(free()).To(BeTrue())
	})

	It("Ctrl-C ends the command, the run and the loop of the shell", func() {
		user := newTypist(url)
		user.types(`for i in 1 2 3; do $R run -k a -- sh -c 'echo started; exec sleep 30'; done` + "\n")
		user.sees("started")
		user.types(ctrlC)
		user.types("echo code $?\n")
		user.sees("code 130\r\n")
		Expect(strings.Count(string(user.screen.Contents()), "started")).To(Equal(1))
		Expect(free()).To(BeTrue())
	})

	It("Ctrl-C ends the script around the run", func() {
		user := newTypist(url)
		user.types(`sh -c '$R run -k a -- sh -c "echo started; exec sleep 30"; echo more'; echo code $?` + "\n")
		user.sees("started\r\n")
		user.types(ctrlC)
		user.types("echo code $?\n")
		user.sees("code 130\r\n")
		Expect(string(user.screen.Contents())).NotTo(ContainSubstring("more"))
	})

	It("Ctrl-Z has no effect where no shell could go on with the run", func() {
		cmd := exec.Command(binary, "run", "-k", "a", "--", "sh", "-c", `echo started; read x; echo "got $x"`)
		cmd.Env = append(os.Environ(), "REDIS_URL="+url)
		user := newTypistIn(cmd)
		user.sees("started\r\n")
		user.types(ctrlZ)
		time.Sleep(200 * time.Millisecond)
		user.types("this\n")
		user.sees("got this\r\n")
		Eventually(free).Should(BeTrue())
	})

	It("Ctrl-C ends the waiting, and leaves the line", func() {
		_, err := redislock.Obtain(ctx, client, "a", time.Minute, nil)
		Expect(err).NotTo(HaveOccurred())
		user := newTypist(url)
		user.types("$R run -k a -- echo ran\n")
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
		user.types(ctrlC)
		user.types("echo code $?\n")
		user.sees("code 130\r\n")
		Expect(client.Exists(ctx, "a{a}:redislock:line").Val()).To(BeZero())
	})

	It("ls --watch restores the screen at its end, and leaves JSON on it", func() {
		user := newTypist(url)
		for _, ending := range []string{"INT", "TERM", "HUP", "QUIT"} {
			user.types("$R ls --watch=100ms & sleep 0.3; kill -" + ending + " $!; wait $!; echo ended\n")
			user.sees(regexp.QuoteMeta(enterScreen))
			user.sees(regexp.QuoteMeta(leaveScreen))
			user.sees("ended\r\n")
		}
		Expect(client.Set(ctx, "a", "q83vEjRWeJCrze8SNFZ4kA", time.Minute).Err()).To(Succeed())
		before := len(user.screen.Contents())
		user.types("$R ls --watch=100ms --json\n")
		user.sees(`"key":"a"`)
		user.types(ctrlC + "echo code $?\n")
		user.sees("code 0\r\n")
		Expect(string(user.screen.Contents()[before:])).NotTo(ContainSubstring(enterScreen))
	})

	It("ls --watch restores the screen for Ctrl-Z, and takes it again for fg", func() {
		Expect(client.Set(ctx, "a", "q83vEjRWeJCrze8SNFZ4kA", time.Minute).Err()).To(Succeed())
		user := newTypist(url)
		user.types("$R ls --watch=1m\n")
		user.sees("q83vEjRWeJCrze8SNFZ4kA")
		user.types(ctrlZ)
		user.sees(regexp.QuoteMeta(leaveScreen))
		user.types("echo sto''pped\n")
		user.sees("stopped\r\n")
		user.types("fg\n")
		user.sees(regexp.QuoteMeta(enterScreen))
		user.sees("q83vEjRWeJCrze8SNFZ4kA") // at once, not after a minute
		user.types(ctrlZ)
		user.sees(regexp.QuoteMeta(leaveScreen))
		user.types("kill %1; fg; echo code $?\n")
		user.sees(regexp.QuoteMeta(leaveScreen) + `(.|\n)*code 0\r\n`)
		Expect(string(user.screen.Contents())).NotTo(MatchRegexp(regexp.QuoteMeta(enterScreen) + `[^h]*code 0`))
	})

	It("Ctrl-\\ ends what asks Redis, without a word", func() {
		Expect(client.Set(ctx, "a", "the-token", time.Minute).Err()).To(Succeed())
		user := newTypist(url)
		user.types("$R wait a\n")
		time.Sleep(300 * time.Millisecond)
		user.types(ctrlBackslash + "echo code $?\n")
		user.sees("code 131\r\n")
		Expect(string(user.screen.Contents())).NotTo(ContainSubstring("goroutine"))
	})

	It("the command can read what is typed", func() {
		user := newTypist(url)
		user.types(`$R run -k a -- sh -c 'echo ask; read x; echo "got $x"'; echo code $?` + "\n")
		user.sees("ask\r\n")
		user.types("this\n")
		user.sees("got this\r\n")
		user.sees("code 0\r\n")
	})

	It("the command can read what is typed while its output goes into a pipe", func() {
		user := newTypist(url)
		user.types(`$R run -k a -- sh -c 'echo ask; read x; echo "got $x"' | cat` + "\n")
		user.sees("ask\r\n")
		user.types("this\n")
		user.sees("got this\r\n")
		user.types("echo next\n")
		user.sees("next\r\n")
	})

	It("whoever reads the output keeps the terminal until the command needs it", func() {
		user := newTypist(url)
		user.types(`$R run -k a -- sh -c 'echo out; exec sleep 1' | sh -c 'read x; echo "$x"; read x </dev/tty; echo "read $x"'` + "\n")
		user.sees("out\r\n")
		user.types("this\n")
		user.sees("read this\r\n")
	})

	It("Ctrl-Z stops the command and the run, and fg goes on with both", func() {
		user := newTypist(url)
		user.types(`$R run -k a --ttl 5s -- sh -c 'echo started; read x; echo "got $x"'; echo code $?` + "\n")
		user.sees("started\r\n")
		user.types(ctrlZ)
		user.sees("Stopped")
		user.sees("code 147\r\n")
		Expect(free()).To(BeFalse())
		user.types("echo the shell lives\n")
		user.sees("the shell lives\r\n")
		user.types("fg; echo code $?\n")
		user.types("this\n")
		user.sees("got this\r\n")
		user.sees("code 0\r\n")
		Expect(free()).To(BeTrue())
	})

	It("bg goes on in the background, and a command that needs the terminal stops until fg", func() {
		user := newTypist(url)
		user.types(`$R run -k a -- sh -c 'echo started; sleep 0.5; echo reading; read x; echo "got $x"'` + "\n")
		user.sees("started\r\n")
		user.types(ctrlZ)
		user.sees("Stopped")
		user.types("bg\n")
		user.sees("reading\r\n")
		user.types("echo the shell lives\n")
		user.sees("the shell lives\r\n")
		Eventually(func() string {
			user.types("jobs\n")
			time.Sleep(50 * time.Millisecond)
			return string(user.screen.Contents())
		}).Should(MatchRegexp(`(?s)reading.*Stopped`))
		user.types("fg\n")
		time.Sleep(200 * time.Millisecond)
		user.types("this\n")
		user.sees("got this\r\n")
	})

	It("Ctrl-Z for longer than the ttl loses the lock, and the command is ended", func() {
		user := newTypist(url)
		user.types(`$R run -k a --ttl 500ms -- sh -c 'trap "echo woken" CONT; echo started; while :; do sleep 0.05; done'; echo code $?` + "\n")
		user.sees("started\r\n")
		user.types(ctrlZ)
		user.sees("Stopped")
		user.sees("code 147\r\n")
		Eventually(free).Should(BeTrue())
		user.types("fg; echo code $?\n")
		user.sees("the lock is lost, so the command is ended: the lease ran out unrenewed")
		user.sees("code 76\r\n")
		Expect(string(user.screen.Contents())).NotTo(ContainSubstring("\nwoken")) // nobody else's lock was touched
	})

	It("the shell has the terminal again after the command was killed", func() {
		user := newTypist(url)
		user.types(`$R run -k a -- sh -c 'echo started $$; exec sleep 30'; echo code $?` + "\n")
		user.sees(`started \d+\r\n`)
		_, after, _ := strings.Cut(string(user.screen.Contents()), "started ")
		pid, err := strconv.Atoi(strings.TrimSpace(after))
		Expect(err).NotTo(HaveOccurred())
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		user.sees("code 137\r\n")
		user.types("read x; echo \"read $x\"\nthis\n")
		user.sees("read this\r\n")
	})

	It("a script without job control has the terminal again after the run", func() {
		user := newTypist(url)
		user.types(`sh -c '$R run -k a -- true; echo ask; read x; echo "read $x"'` + "\n")
		user.sees("ask\r\n")
		user.types("this\n")
		user.sees("read this\r\n")
	})

	It("a script has the terminal again after a command that could not be started", func() {
		user := newTypist(url)
		bad := GinkgoT().TempDir() + "/bad"
		Expect(os.WriteFile(bad, []byte("#!/no/such/interpreter\n"), 0o755)).To(Succeed())
		user.types(`sh -c '$R run -k a -- ` + bad + `; echo code $?; read x; echo "read $x"'` + "\n")
		user.sees(`code 12[67]\r\n`)
		user.types("this\n")
		user.sees("read this\r\n")
		Expect(free()).To(BeTrue())
	})

	It("hanging up ends the command, and releases the lock", func() {
		user := newTypist(url)
		user.types(`$R run -k a --ttl 1m -- sh -c 'echo started; exec sleep 30'` + "\n")
		user.sees("started\r\n")
		Expect(user.shell.Process.Kill()).To(Succeed()) // with the leader of its session, the terminal is gone
		Eventually(free).Should(BeTrue())
	})

	It("two contend: the second runs when the first is ended", func() {
		first, second := newTypist(url), newTypist(url)
		first.types(`$R run -k a -- sh -c 'echo "first started"; exec sleep 30'` + "\n")
		first.sees("first started\r\n")
		second.types(`$R run -k a --no-wait -- echo never; echo code $?` + "\n")
		second.sees(`redislock: not locked: "a" is held by alice on .* \(sh -c .*\)`)
		second.sees("code 1\r\n")
		second.types(`$R run -k a -- echo second started; echo code $?` + "\n")
		Eventually(client.Exists).WithArguments(ctx, "a{a}:redislock:line").Should(HaveField("Val()", int64(1)))
		first.types(ctrlC)
		second.sees("second started\r\n")
		second.sees("code 0\r\n")
	})

	DescribeTable("release --force says who is losing it, and asks",
		func(answer, outcome string, left int64) {
			_, err := redislock.Obtain(ctx, client, "a", time.Minute, &redislock.Options{
				Metadata: `{"host":"api-3","pid":4121,"user":"bob","command":"./ship 7"}`,
			})
			Expect(err).NotTo(HaveOccurred())
			user := newTypist(url)
			user.types("$R release a --force; echo code $?\n")
			user.sees(`a is held by bob on api-3, pid 4121 \(\./ship 7\), for 5\ds more\r\nTake it away\? \[y/N\] `)
			user.types(answer)
			user.sees(outcome)
			Expect(client.Exists(ctx, "a").Val()).To(Equal(left))
		},
		Entry("yes", "y\n", `released a, held by bob.*\r\ncode 0`, int64(0)),
		Entry("no", "n\n", `redislock: nothing was released\r\ncode 1`, int64(1)),
		Entry("nothing", "\n", `redislock: nothing was released\r\ncode 1`, int64(1)),
		Entry("the end of the input", "\x04", `redislock: nothing was released\r\ncode 1`, int64(1)),
	)
})
