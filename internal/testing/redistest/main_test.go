package redistest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/leash"
)

// helperEnv makes the test binary a process that starts a server and then
// meets the end that the variable names.
const helperEnv = "REDISTEST_HELPER"

func TestMain(m *testing.M) {
	if end := os.Getenv(helperEnv); end != "" {
		helper(end)
	}
	os.Exit(m.Run())
}

// helper prints the address of a server it started, and never closes it.
func helper(end string) {
	s, err := Start()
	if err == nil && end == "killed while the server is paused" {
		err = s.Pause()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	switch end {
	case "exit":
		os.Exit(0)
	case "panic":
		panic("on purpose")
	}
	time.Sleep(time.Minute) // until killed
	os.Exit(1)
}

func TestServerDiesWithTheProcessThatStartedIt(t *testing.T) {
	needRedis(t)
	for _, end := range []string{"exit", "panic", "killed", "killed while the server is paused"} {
		t.Run(end, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			// The helper cannot remove its directory; ours takes it along.
			cmd.Env = append(os.Environ(), helperEnv+"="+end, "TMPDIR="+t.TempDir())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			addr := strings.TrimSpace(line)
			if _, _, err := net.SplitHostPort(addr); err != nil {
				t.Fatalf("helper: %s", line)
			}
			if strings.HasPrefix(end, "killed") {
				if !listens(addr) {
					t.Error("the server does not listen while its starter lives")
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
			_ = cmd.Wait()

			// The kernel answers for a paused server, but not for a dead one.
			if err := poll(nil, leash.EndLimit, func() error {
				if listens(addr) {
					return fmt.Errorf("%s still listens", addr)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// needRedis skips the test if there is no redis-server, or fails it if
// REDISLOCK_TEST_REQUIRE says that there must be one.
func needRedis(t *testing.T) {
	t.Helper()
	err := Available()
	switch {
	case err == nil:
	case os.Getenv("REDISLOCK_TEST_REQUIRE") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

func listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// must fails the test at once if one of errs is not nil.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// connect returns a client to s which the test closes at its end. It is patient, because a busy disk can delay a write
// with appendfsync always by more than a second.
func connect(t *testing.T, s *Server) *redis.Client {
	t.Helper()
	client := s.client().WithTimeout(10 * time.Second)
	t.Cleanup(func() { client.Close() })
	return client
}
