package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/leash"
)

// A Server is one redis-server on 127.0.0.1, with a temporary directory for
// its configuration, log and data.
//
// The process dies with the one that started it, even when that is killed, so
// a test that panics or times out leaves no server behind (only its temporary
// directory). Close is still the way to end it.
//
// A Server is safe for concurrent use. Its methods run one at a time, so one
// that waits for the process, such as Stop, holds up the others.
type Server struct {
	bin      string
	args     []string // after the configuration file
	env      []string // beside ours
	dir      string
	port     int
	reserved io.Closer // holds port until Close
	password string

	mu     sync.Mutex     // protects proc and closed
	proc   *leash.Process // the latest run; nil before the first
	closed bool
}

const (
	confFile = "redis.conf"
	logFile  = "redis.log"
)

// errPortInUse means that another process bound the port before redis-server.
var errPortInUse = errors.New("port in use")

// Start starts a redis-server that saves nothing and waits, for at most 10
// seconds, until it answers. Each config is one more line for redis.conf, such
// as "appendonly yes" or "maxmemory 100mb"; it overrides the line that Start
// itself writes. With "requirepass" the password is plain, without quotes.
//
// It returns an error if there is no redis-server on PATH, or, with the end of
// the server's log, if the server did not start.
func Start(config ...string) (*Server, error) {
	return StartWithEnv(nil, config...)
}

// StartWithEnv starts a redis-server as Start does, with env, in the form "NAME=value", beside the environment of this
// process.
func StartWithEnv(env []string, config ...string) (*Server, error) {
	lines := append([]string{`save ""`, "appendonly no"}, config...)
	return start(env, lines)
}

// start starts redis-server with args after the configuration, on another port
// for as long as the port it chose turns out to be in use.
func start(env, config []string, args ...string) (*Server, error) {
	bin, err := lookPath()
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		s, err := startOnce(bin, env, config, args)
		if err == nil || attempt == 5 || !errors.Is(err, errPortInUse) {
			return s, err
		}
	}
}

func startOnce(bin string, env, config, args []string) (*Server, error) {
	port, reserved, err := takePort()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, env: env, args: args, port: port, reserved: reserved}
	for _, line := range config {
		if password, ok := strings.CutPrefix(line, "requirepass "); ok {
			s.password = strings.TrimSpace(password)
		}
	}
	if err := s.firstRun(config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// firstRun makes the directory and the configuration and starts the process. A later run takes the configuration as it is
// then: a sentinel keeps its state in there, and CONFIG REWRITE changes it.
func (s *Server) firstRun(config []string) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir, err = os.MkdirTemp("", "redistest-"); err != nil {
		return err
	}
	lines := append([]string{
		fmt.Sprintf("port %d", s.port),
		"bind 127.0.0.1",
		"protected-mode no",
		"daemonize no",
	}, config...)
	conf := []byte(strings.Join(lines, "\n") + "\n")
	if err := os.WriteFile(filepath.Join(s.dir, confFile), conf, 0o600); err != nil {
		return err
	}
	return s.run()
}

// Addr returns the address of the server, as host:port. It stays the same over every Restart.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Port returns the port of the server.
func (s *Server) Port() int { return s.port }

// Pid returns the id of the redis-server process, and 0 if it is not running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.proc.Running() {
		return 0
	}
	return s.proc.Pid()
}

// Pause stops the process with SIGSTOP: the kernel still accepts connections and bytes for it, but no request sent after
// Pause has returned is executed before Resume. It returns an error if the server is not running.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Pause()
}

// Resume lets a paused process go on, with SIGCONT. It returns an error if the server is not running.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Resume()
}

// Kill ends the process with SIGKILL, paused or not, and waits until it is
// gone. It returns nil if the server is not running.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Kill()
}

// Stop asks the process to shut down, with SIGTERM, and waits until it is gone; a paused one goes on to do so. It returns an
// error if the process is still there after 30 seconds, and nil if the server is not running.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Terminate()
}

// Restart starts the server again on the same port and directory, after a Stop
// if it is running, and waits, for at most 10 seconds, until it answers and has
// loaded its data. What it still knows depends on its config: by default,
// nothing.
//
// It returns an error after Close, and, with the end of the server's log, if
// the server did not start.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.Terminate(); err != nil {
		return err
	}
	return s.run()
}

// Forget removes what a server has saved, so that the next Restart finds nothing, whatever its config. It returns an error
// if the server is running.
func (s *Server) Forget() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc.Running() {
		return errors.New("redistest: a server that runs does not forget")
	}
	var errs []error
	for _, name := range []string{"appendonlydir", "appendonly.aof", "dump.rdb"} {
		errs = append(errs, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	return errors.Join(errs...)
}

// Close ends the process with SIGKILL, paused or not, and removes the temporary
// directory. The second and later calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	errs := []error{s.proc.Kill()}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(append(errs, s.reserved.Close())...)
}

// run starts the process and waits until it is ready. If it is not, it leaves no process behind. The caller holds mu.
func (s *Server) run() error {
	if s.closed {
		return errors.New("redistest: the server is closed")
	}
	log, err := os.Create(filepath.Join(s.dir, logFile))
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own descriptor

	args := append([]string{filepath.Join(s.dir, confFile)}, s.args...)
	proc, err := leash.Start(s.dir, log, s.env, s.bin, args...)
	if err != nil {
		return fmt.Errorf("redistest: start %s: %w", executable, err)
	}
	s.proc = proc

	client := s.client()
	defer client.Close()
	err = poll(proc.Exited(), startLimit, func() error { return s.ready(client) })
	if err == nil {
		return nil
	}
	err = errors.Join(err, proc.Kill())
	tail := s.logTail()
	if strings.Contains(tail, "ddress already in use") {
		err = errors.Join(errPortInUse, err)
	}
	return fmt.Errorf("redistest: %s on port %d did not start: %w\n%s", executable, s.port, err, tail)
}

// ready returns nil once the process answers and is not loading its data.
func (s *Server) ready(client *redis.Client) error {
	// The client spaces out its attempts after a refused connection, by far
	// longer than the server takes to start: knock without it first.
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return err
	}
	conn.Close()

	info, err := client.Info(context.Background()).Result()
	if err != nil {
		return err
	}
	// If another server took the port just before ours, it would answer while ours is still about to fail.
	if pid := infoField(info, "process_id"); pid != fmt.Sprint(s.proc.Pid()) {
		return fmt.Errorf("%w: process %s answers", errPortInUse, pid)
	}
	if infoField(info, "loading") == "1" {
		return errors.New("it is loading its data")
	}
	return nil
}

// client returns a client for a handful of commands, which asks once and fails soon. The caller closes it.
func (s *Server) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:            s.Addr(),
		Password:        s.password,
		Protocol:        2,
		DisableIdentity: true,
		MaxRetries:      -1,
		DialerRetries:   1,
		DialTimeout:     time.Second,
		ReadTimeout:     time.Second,
		WriteTimeout:    time.Second,
	})
}

// with calls fn with a client of its own.
func (s *Server) with(fn func(*redis.Client) error) error {
	client := s.client()
	defer client.Close()
	if err := fn(client); err != nil {
		return fmt.Errorf("redistest: %s: %w", s.Addr(), err)
	}
	return nil
}

// logTail returns the last lines of the log of the latest run.
func (s *Server) logTail() string {
	log, err := os.ReadFile(filepath.Join(s.dir, logFile))
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	lines = lines[max(0, len(lines)-20):]
	return string(bytes.Join(lines, []byte("\n")))
}

// infoField returns the value of a field in the reply of INFO and the commands
// that answer alike, and "" if the field is not there.
func infoField(info, name string) string {
	for line := range strings.SplitSeq(info, "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
