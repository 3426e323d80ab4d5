package round

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/leash"
	"github.com/redislock/redislock/torture/internal/clock"
)

// crowd is how many further goroutines of every second worker make bursts. The library lets calls share round trips and
// scripts when more than eight are under way.
const crowd = 12

// slot is a place for a worker. After a worker was killed, another worker takes its place, and reaches the servers through
// the same proxies.
type slot struct {
	round   *round
	name    string
	number  int
	client  string // of the workers
	proxies []*faultproxy.Proxy
	via     map[string]string

	mu      sync.Mutex // protects the fields below
	count   int        // of workers so far
	process *leash.Process
}

// newSlot makes a slot. One in three connects to the servers directly.
func (r *round) newSlot(number int) (*slot, error) {
	s := &slot{round: r, name: fmt.Sprintf("w%d", number), number: number, via: map[string]string{}}
	s.client = r.Clients[number%len(r.Clients)]
	if number%3 == 2 {
		return s, nil
	}
	for _, server := range r.topology.Servers() {
		proxy, err := faultproxy.New(server.Addr())
		if err != nil {
			return s, err
		}
		proxy.Forget()
		s.proxies = append(s.proxies, proxy)
		s.via[server.Addr()] = proxy.Addr()
	}
	return s, nil
}

// run starts the next worker of the slot.
func (s *slot) run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("%s.%d", s.name, s.count)
	s.count++
	config := s.round.config(name, s.client, s.round.Seed*1_000_003+uint64(s.number*1000+s.count))
	config.Via = s.via
	if s.number%2 == 1 && (s.round.Scene == "" || s.round.Scene == "burst") {
		config.Crowd = crowd
	}
	file := filepath.Join(s.round.Dir, name+".json")
	if err := config.Write(file); err != nil {
		return err
	}
	process, err := startProgram(s.round.Dir, name, s.round.Program, "worker", file)
	if err != nil {
		return err
	}
	s.process = process
	for range 500 { // until there is a history to follow
		if err = s.round.follow(name); err == nil || !process.Running() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("worker %s did not start: %w%s", name, err, tail(s.round.Dir, name))
	}
	return nil
}

// current returns the present process.
func (s *slot) current() *leash.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// finish waits until the worker has ended by itself. If the worker does not end, it has hung, and finish writes that down.
func (s *slot) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.process.Resume()
	name := fmt.Sprintf("%s.%d", s.name, s.count-1)
	select {
	case <-s.process.Exited():
		if text := tail(s.round.Dir, name); text != "" {
			s.round.log.Write(history.Event{Kind: history.Done, At: clock.Now(), Name: "Worker", Op: name, Outcome: "crashed"})
		}
	case <-time.After(30 * time.Second):
		_ = s.process.Quit()
		time.Sleep(200 * time.Millisecond) // so that the worker can print where its goroutines are
		_ = s.process.Kill()
		s.round.log.Write(history.Event{Kind: history.Done, At: clock.Now(), Name: "Worker", Op: name, Outcome: "hung"})
	}
}

func (s *slot) close() error {
	var errs []error
	if p := s.current(); p != nil {
		errs = append(errs, p.Kill())
	}
	for _, proxy := range s.proxies {
		errs = append(errs, proxy.Close())
	}
	return errors.Join(errs...)
}

// startProgram starts a process of this program, with its output in a file.
func startProgram(dir, name, program string, args ...string) (*leash.Process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	return leash.Start(dir, log, nil, program, args...)
}

// tail returns the end of what a process has printed. That is nothing if all is well.
func tail(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name+".log"))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\n" + string(text[max(0, len(text)-4000):])
}
