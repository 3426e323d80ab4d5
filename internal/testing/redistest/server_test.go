package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// newServer starts a server which the test closes at its end.
func newServer(t *testing.T, config ...string) *Server {
	t.Helper()
	needRedis(t)
	began := time.Now()
	s, err := Start(config...)
	must(t, err)
	t.Logf("started in %v", time.Since(began))
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func TestStartServesOnItsOwnPort(t *testing.T) {
	s := newServer(t)
	if s.Addr() != fmt.Sprintf("127.0.0.1:%d", s.Port()) || s.Port() == 6379 {
		t.Errorf("Addr() = %q, Port() = %d", s.Addr(), s.Port())
	}
	info, err := connect(t, s).Info(t.Context()).Result()
	must(t, err)
	if pid := infoField(info, "process_id"); pid != fmt.Sprint(s.Pid()) {
		t.Errorf("Pid() = %d, but redis-server is %s", s.Pid(), pid)
	}
}

func TestStartTakesConfig(t *testing.T) {
	s := newServer(t, "maxmemory 100mb", "appendonly yes", "requirepass secret")
	client := connect(t, s)
	for name, want := range map[string]string{"maxmemory": "104857600", "appendonly": "yes", "save": ""} {
		got, err := client.ConfigGet(t.Context(), name).Result()
		must(t, err)
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
}

func TestStartReportsTheLog(t *testing.T) {
	needRedis(t)
	s, err := Start("no-such-directive yes")
	if err == nil {
		s.Close()
		t.Fatal("Start accepted a directive that does not exist")
	}
	if !strings.Contains(err.Error(), "no-such-directive") {
		t.Errorf("the error does not show the log: %v", err)
	}
}

func TestStartSaysWhenThePortIsInUse(t *testing.T) {
	s := newServer(t)
	// Another server answers on the port, so that only the pid tells them apart.
	other := &Server{bin: s.bin, port: s.port, dir: t.TempDir()}
	must(t, os.WriteFile(other.dir+"/"+confFile, fmt.Appendf(nil, "bind 127.0.0.1\nport %d\n", s.port), 0o600))
	other.mu.Lock()
	defer other.mu.Unlock()
	if err := other.run(); !errors.Is(err, errPortInUse) {
		t.Errorf("run() = %v, want errPortInUse", err)
	}
	if other.proc.Running() {
		t.Error("the failed start left its process behind")
	}
}

func TestStartInParallel(t *testing.T) {
	needRedis(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := Start()
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestPauseAndResume(t *testing.T) {
	s := newServer(t)
	client := s.client()
	defer client.Close()
	must(t, s.Pause())
	var timeout net.Error
	if err := client.Ping(t.Context()).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("PING of a paused server: %v, want a timeout", err)
	}
	must(t, s.Resume(), client.Ping(t.Context()).Err())
}

func TestForget(t *testing.T) {
	needRedis(t)
	s, err := Start("appendonly yes", "appendfsync always")
	must(t, err)
	defer s.Close()
	client := connect(t, s)
	must(t, client.Set(t.Context(), "k", "v", 0).Err())
	if s.Forget() == nil {
		t.Error("a server that runs forgot")
	}
	must(t, s.Kill(), s.Restart())
	if got, err := client.Get(t.Context(), "k").Result(); got != "v" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	must(t, s.Kill(), s.Forget(), s.Restart())
	if n, err := client.Exists(t.Context(), "k").Result(); n != 0 || err != nil {
		t.Errorf("after Forget: %d, %v", n, err)
	}
}

func TestKillAndRestart(t *testing.T) {
	s := newServer(t, "appendonly yes", "appendfsync always")
	addr, pid := s.Addr(), s.Pid()
	must(t, connect(t, s).Set(t.Context(), "k", "v", 0).Err(), s.Kill())
	if listens(addr) || s.Pid() != 0 {
		t.Errorf("after Kill the server still listens, or Pid() = %d is not 0", s.Pid())
	}
	if s.Pause() == nil || s.Resume() == nil {
		t.Error("Pause and Resume do not say that the server is gone")
	}
	must(t, s.Kill(), s.Stop(), s.Restart())
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("restarted at %s as %d, was at %s as %d", s.Addr(), s.Pid(), addr, pid)
	}
	if got, err := connect(t, s).Get(t.Context(), "k").Result(); got != "v" {
		t.Errorf("after Restart k = %q, %v", got, err)
	}
}

func TestAServerThatIsDownKeepsItsPort(t *testing.T) {
	s := newServer(t)
	must(t, s.Kill())
	if reservation, err := reserve(s.Port()); err == nil {
		must(t, reservation.Close())
		t.Error("another server can have the port of one that is down")
	}
	must(t, s.Restart(), s.Close())
	reservation, err := reserve(s.Port())
	must(t, err)
	must(t, reservation.Close())
}

func TestStopEndsAPausedServer(t *testing.T) {
	s := newServer(t)
	must(t, s.Pause(), s.Stop())
	if listens(s.Addr()) {
		t.Error("the server still listens")
	}
}

func TestRestartOfARunningServer(t *testing.T) {
	s := newServer(t)
	client := connect(t, s)
	must(t, client.Set(t.Context(), "k", "v", 0).Err(), s.Restart())
	if n, err := connect(t, s).DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("DBSIZE = %d, %v, want an empty server", n, err)
	}
}

func TestCloseEndsAPausedServerAndRemovesItsDirectory(t *testing.T) {
	s := newServer(t)
	must(t, s.Pause(), s.Close(), s.Close())
	if listens(s.Addr()) {
		t.Error("the server still listens")
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
	if s.Restart() == nil {
		t.Error("Restart works after Close")
	}
}
