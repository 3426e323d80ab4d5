// Package clitest runs the program in specs as a user does: built by go build, as a process of its own, on real servers
// and at terminals. It knows the program only by its import path and its command line.
package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/redislock/redislock/internal/testing/race"
	"github.com/redislock/redislock/internal/testing/shard"
)

// RunSpecs runs the specs of a package, in several processes if they take long. All use one program, which is built first.
func RunSpecs(t *testing.T, name string) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(15 * time.Second) // with the race detector, a program needs a second of CPU time
	gomega.SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	if shard.Name() == "" {
		path, err := build(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		_ = os.Setenv(programVariable, path) //nolint:usetesting // tests in parallel, as this one, cannot use t.Setenv
	}
	shard.Suites{name: {}}.Run(t, shard.Most, shard.RunSpecs)
}

const programVariable = "REDISLOCK_TEST_PROGRAM"

// Program returns the path of the program. If the specs run under the race detector, so does the program.
func Program() string { return os.Getenv(programVariable) }

// build builds the program in a directory. It begins with what another package's specs have built: go build leaves that as
// it is if it is up to date, and otherwise takes two seconds of CPU time to link the program.
func build(directory string) (path string, err error) {
	name, flags := "redislock", []string{"build", "-buildvcs=false"}
	if race.Enabled {
		name, flags = name+"-race", append(flags, "-race")
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	path = filepath.Join(directory, name)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = directory
	}
	cache = filepath.Join(cache, "redislock-specs")
	earlier, err := os.ReadFile(filepath.Join(cache, name))
	if err == nil {
		err = os.WriteFile(path, earlier, 0o755) //nolint:gosec // other users may execute it
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	flags = append(flags, "-o", path, "github.com/redislock/redislock/cmd/redislock")
	if printed, err := exec.Command("go", flags...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(flags, " "), err, printed)
	}
	if built, err := os.ReadFile(path); err == nil && !bytes.Equal(built, earlier) {
		keep(cache, name, built)
	}
	return path, nil
}

// keep keeps the program for the specs of other packages, which may do the same at this moment. If it cannot, they build
// their own.
func keep(cache, name string, program []byte) {
	if os.MkdirAll(cache, 0o700) != nil {
		return
	}
	part := filepath.Join(cache, fmt.Sprint(name, ".", os.Getpid()))
	if os.WriteFile(part, program, 0o600) != nil || os.Rename(part, filepath.Join(cache, name)) != nil {
		_ = os.Remove(part)
	}
}

// Environ returns the environment of the tests, without what would change the output of the program, and with the
// variables given.
func Environ(variables ...string) []string {
	env := append(os.Environ(), "REDIS_URL=", "NO_COLOR=", "TERM=xterm", "USER=alice", "REDISLOCK_PASSWORD_FILE=",
		"REDISLOCK_MAX_TTL=", "REDISLOCK_DEPOSED=", "REDISLOCK_TLS_CA=", "REDISLOCK_TLS_CERT=", "REDISLOCK_TLS_KEY=")
	env = append(env, "GORACE=atexit_sleep_ms=0") // the race detector would make each run a second longer
	return append(env, variables...)
}

// Command prepares a run of the program, with the variables given.
func Command(variables []string, args ...string) *exec.Cmd {
	cmd := exec.Command(Program(), args...)
	cmd.Env = Environ(variables...)
	cmd.WaitDelay = 200 * time.Millisecond // what the command leaves behind may hold stdout
	return cmd
}

// catchIgnored lets the processes that this one starts begin without ignored signals, although this one ignores some, as
// under nohup and in the background of a script. A process passes on which signals it ignores, but not which it catches. So
// catch those, and do nothing about them. Go itself catches the other signals that end a program.
func catchIgnored() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// Start starts a process that ignores no signals, and kills it at the end of the spec.
func Start(cmd *exec.Cmd) *gexec.Session {
	ginkgo.GinkgoHelper()
	catchIgnored()
	session, err := gexec.Start(cmd, ginkgo.GinkgoWriter, ginkgo.GinkgoWriter)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// Begin starts the program on the Redis at url.
func Begin(url string, args ...string) *gexec.Session {
	ginkgo.GinkgoHelper()
	return Start(Command([]string{"REDIS_URL=" + url}, args...))
}

// Run runs the program on the Redis at url, to its end.
func Run(url string, args ...string) *gexec.Session {
	ginkgo.GinkgoHelper()
	return RunWith(nil, url, args...)
}

// RunWith is Run with something on stdin.
func RunWith(stdin io.Reader, url string, args ...string) *gexec.Session {
	ginkgo.GinkgoHelper()
	cmd := Command([]string{"REDIS_URL=" + url}, args...)
	cmd.Stdin = stdin
	session := Start(cmd)
	select {
	case <-session.Exited:
	case <-time.After(20 * time.Second):
		session.Signal(syscall.SIGABRT) // the program writes what all its goroutines do
		gomega.Eventually(session, 5*time.Second).Should(gexec.Exit())
		ginkgo.Fail("the program did not end:\n" + Stderr(session))
	}
	return session
}

// Stdout returns what a session has printed to stdout.
func Stdout(session *gexec.Session) string { return string(session.Out.Contents()) }

// Stderr returns what a session has printed to stderr.
func Stderr(session *gexec.Session) string { return string(session.Err.Contents()) }
