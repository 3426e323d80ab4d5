package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/redistest"
)

// The specs run the program as a user does: built by go build, as a process of its own.

func TestProgram(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(5 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	RunSpecs(t, "the command redislock")
}

// binary is the path of the program.
var binary string

var _ = BeforeSuite(func() {
	flags := []string{"-buildvcs=false"}
	if raced {
		flags = append(flags, "-race")
		GinkgoT().Setenv("GORACE", "atexit_sleep_ms=0") // else each run takes a second longer
	}
	var err error
	binary, err = gexec.Build("github.com/redislock/redislock/cmd/redislock", flags...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
})

// needServer leaves the spec out without a redis-server, or fails it if REDISLOCK_TEST_REQUIRE says that there must be one.
func needServer() {
	GinkgoHelper()
	if err := redistest.Available(); err != nil {
		if os.Getenv("REDISLOCK_TEST_REQUIRE") == "1" {
			Fail(err.Error())
		}
		Skip(err.Error())
	}
}

// newServer starts a redis-server for one spec.
func newServer(config ...string) (*redistest.Server, *redis.Client) {
	GinkgoHelper()
	needServer()
	server, err := redistest.Start(config...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	DeferCleanup(client.Close)
	return server, client
}

// commandOf prepares the program with arguments and the environment of the tests, but for what would change its ways, and
// with the variables given.
func commandOf(variables []string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "REDIS_URL=", "NO_COLOR=", "TERM=xterm", "USER=alice")
	cmd.Env = append(cmd.Env, variables...)
	cmd.WaitDelay = 200 * time.Millisecond // whatever the command leaves behind may hold stdout
	return cmd
}

// start starts a process, and ends it with the spec.
func start(cmd *exec.Cmd) *gexec.Session {
	GinkgoHelper()
	session, err := gexec.Start(cmd, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// ranWith runs the program to its end.
func ranWith(url string, stdin io.Reader, args ...string) *gexec.Session {
	GinkgoHelper()
	cmd := commandOf([]string{"REDIS_URL=" + url}, args...)
	cmd.Stdin = stdin
	session := start(cmd)
	Eventually(session, 20*time.Second).Should(gexec.Exit())
	return session
}

// stderrOf returns what a session has printed to stderr.
func stderrOf(session *gexec.Session) string { return string(session.Err.Contents()) }

// stdoutOf returns what a session has printed to stdout.
func stdoutOf(session *gexec.Session) string { return string(session.Out.Contents()) }
