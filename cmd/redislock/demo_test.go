package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/redistest"
)

const longest = 13 * time.Second // that a demonstration may take

// essentials are what the story must tell, in this order.
var essentials = []string{
	`checkout ✓ locked order:7 and stock:42 together, for 5 s\n`,
	`restock  ✗ refused: stock:42 is taken \(redislock: not obtained\)\n`,
	`account:3 is still free\n`,
	`\{redislock-demo\}:order:7    [\w-]{22}  \d\.\d s  checkout, order 7\n`,
	`\{redislock-demo\}:stock:42   [\w-]{22}  \d\.\d s  checkout, order 7\n`,
	`\{redislock-demo\}:account:3  \(free\)\n`,
	`> GET \{redislock-demo\}:stock:42\n   "[\w-]{22} checkout, order 7"\n`,
	`restock    waits in line`,
	`█░+  [0-4]\.\d\d s left\n`,
	`█░+  [0-4]\.\d\d s left\n`,
	`█░+  [0-4]\.\d\d s left\n`,
	`restock    stands in line for stock:42, alone`,
	`checkout ✓ █+░*  [45]\.\d\d s left, by Refresh\n`,
	`Lock\.Until`,
	`checkout ✓ released`,
	`restock  ✓ locked stock:42 and account:3, \d+ ms later\n`,
	`\{redislock-demo\}:order:7    \(free\)\n`,
	`\{redislock-demo\}:stock:42   [\w-]{22}  \d\.\d s  restock, stock 42\n`,
	`restock    took its lock for 1\.5 s only, and keeps it\n`,
	`█░*  1\.[0-5]\d s left\n`,
	`█░*  1\.[0-5]\d s left\n`,
	`restock  ✓ has it still`,
	`restock    hangs`,
	`checkout ✓ locked order:7 and stock:42\n`,
	`restock  ✗ cannot refresh either \(redislock: not obtained\)\n`,
	`1st grant, fencing token \d{16}\n`,
	`2nd grant, fencing token \d{16}\n`,
	`3rd grant, fencing token \d{16}\n`,
	`storage  ✓ took the write of checkout`,
	`storage  ✗ refused the late write of restock`,
	`no key is left behind\.\n$`,
}

var story = regexp.MustCompile(`(?s)` + strings.Join(essentials, `.*`))

func TestDemo(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		got := running(t.Context(), "demo")
		told(t, got)
		for line := range strings.Lines(got.stdout) {
			if utf8.RuneCountInString(line) > 81 {
				t.Errorf("wider than 80 columns: %s", line)
			}
		}
	})
	t.Run("on a server", func(t *testing.T) {
		needRedis(t)
		t.Parallel()
		server, err := redistest.Start("requirepass secret")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		url := "redis://:secret@" + server.Addr() + "/2"
		told(t, running(t.Context(), "demo", "--redis", url))
		leftNothing(t, url)

		got := running(t.Context(), "demo", "--redis", "redis://:secretive@"+server.Addr())
		failed(t, got, 69, server.Addr()+": user or password is wrong")
	})
}

// told fails the test if the story was not told in full.
func told(t *testing.T, got outcome) {
	t.Helper()
	if got.code != 0 || got.stderr != "" {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
	if got.took > longest {
		t.Errorf("took %v", got.took)
	}
	if !story.MatchString(got.stdout) {
		for n := len(essentials) - 1; n > 0; n-- {
			if regexp.MustCompile(`(?s)` + strings.Join(essentials[:n], `.*`)).MatchString(got.stdout) {
				t.Errorf("no %q after %q", essentials[n], essentials[n-1])
				break
			}
		}
		t.Errorf("the story was:\n%s", got.stdout)
	}
	if strings.Contains(got.stdout, "\x1b") {
		t.Error("colours, and this is not a terminal")
	}
}

// failed fails the test if the program did not end with the exit code and one line that holds the words.
func failed(t *testing.T, got outcome, code int, words string) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d", got.code, code)
	}
	holds(t, "stderr", got.stderr, words)
	oneLine(t, got.stderr)
	if strings.Contains(got.stderr, "secret") {
		t.Errorf("stderr tells the password: %s", got.stderr)
	}
	if got.took > longest {
		t.Errorf("took %v", got.took)
	}
}

func TestDemoEndsAtOnceWhenInterrupted(t *testing.T) {
	t.Parallel()
	_, url := serving(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(2*time.Second, cancel) // restock is waiting then
	got := running(ctx, "demo", "--redis", url)
	if got.code != 130 {
		t.Errorf("exit code %d, want 130", got.code)
	}
	if got.took > 4*time.Second {
		t.Errorf("took %v, and was interrupted after 2 s", got.took)
	}
	holds(t, "stderr", got.stderr, "no key is left behind")
	leftNothing(t, url)
}

func TestDemoTidiesUpAfterASignal(t *testing.T) {
	for way, want := range map[string]int{"an interrupt": 130, "a closed pipe": 141} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			_, url := serving(t)
			cmd, stderr := program(t, "demo", "--redis", url)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() && !strings.Contains(lines.Text(), "together") {
			}
			if way == "an interrupt" {
				err = cmd.Process.Signal(os.Interrupt)
			} else {
				err = out.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if code := exitCodeOf(t, cmd.Wait()); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			holds(t, "stderr", stderr.String(), "no key is left behind")
			oneLine(t, stderr.String())
			leftNothing(t, url)
		})
	}
}

func TestDemoFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	server, url := serving(t)
	time.AfterFunc(time.Second, server.FlushAll) // a Redis that forgets
	failed(t, running(t.Context(), "demo", "--redis", url), 1, "this should not happen: the remaining TTL")
	leftNothing(t, url)
}

func TestDemoRefusesToDisturb(t *testing.T) {
	t.Parallel()
	server, url := serving(t)
	if err := server.Set(fence, "41"); err != nil {
		t.Fatal(err)
	}
	got := running(t.Context(), "demo", "--redis", url)
	failed(t, got, 1, "the key "+fence+" exists: wait for the other demo to end")
	if value, err := server.Get(fence); value != "41" || got.stdout != "" {
		t.Errorf("the key holds %q (%v), and stdout %q", value, err, got.stdout)
	}
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	t.Run("silent", func(t *testing.T) {
		failed(t, running(t.Context(), "demo", "--redis", "redis://user:secret@"+addr), 69, addr+": no answer within 3s")
	})
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("gone", func(t *testing.T) { // as a program, so that stderr is all there is
		cmd, stderr := program(t, "demo", "--redis", "redis://user:secret@"+addr)
		code := exitCodeOf(t, cmd.Run())
		failed(t, outcome{code: code, stderr: stderr.String()}, 69, "cannot use the Redis at "+addr+": the connection is refused")
	})
}

func TestColours(t *testing.T) {
	var out strings.Builder
	n := newNarrator(&out, true)
	n.gets(checkout, "locked")
	holds(t, "the line", out.String(), "\x1b[36mcheckout\x1b[0m \x1b[32m✓\x1b[0m locked\n")
}

// serving starts a Redis in memory that listens on a port, with keys that expire as time passes.
func serving(t *testing.T) (server *miniredis.Miniredis, url string) {
	t.Helper()
	server = miniredis.RunT(t)
	server.ClockTTL(true)
	return server, "redis://" + server.Addr()
}

// leftNothing fails the test if there is a key.
func leftNothing(t *testing.T, url string) {
	t.Helper()
	opt, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("keys are left: %q (%v)", keys, err)
	}
}

// needRedis skips the test without a redis-server, or fails it if REDISLOCK_TEST_REQUIRE says that there must be one.
func needRedis(t *testing.T) {
	t.Helper()
	err := redistest.Available()
	switch {
	case err == nil:
	case os.Getenv("REDISLOCK_TEST_REQUIRE") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
