package worker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
	"github.com/redislock/redislock/torture/internal/store"
)

// process is one worker process.
type process struct {
	*Config

	log     *history.Writer
	backend *backend
	count   atomic.Int64 // of calls so far

	mu      sync.Mutex // protects clients
	clients [2]*redislock.Client
}

// Main runs a worker with the configuration of a file, until its time is over and all calls have ended.
func Main(file string) error {
	config, err := Read(file)
	if err != nil {
		return err
	}
	log, err := history.Create(config.History, config.Worker)
	if err != nil {
		return err
	}
	defer log.Close()
	b, err := config.connectSoon()
	if err != nil {
		return err
	}
	defer b.close()
	p := &process{Config: config, log: log, backend: b}
	for i := range p.clients {
		p.clients[i] = p.newClient(i)
	}

	over := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() { p.beat(over) })
	var running sync.WaitGroup
	for n := range config.Goroutines + config.Crowd {
		guarded, err := store.Dial(config.Store)
		if err != nil {
			return err // the connections end with the process
		}
		g := &goroutine{
			process: p, n: n, store: guarded,
			random: rand.New(rand.NewPCG(config.Seed, uint64(n))),
		}
		running.Go(func() {
			defer guarded.Close()
			g.run()
		})
	}
	running.Wait()
	for i := range p.clients {
		_ = p.client(i).Close()
	}
	close(over)
	beats.Wait()
	return nil
}

// beat shows that the process runs.
func (p *process) beat(over chan struct{}) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		p.log.Write(history.Event{Kind: history.Beat, At: clock.Now()})
		select {
		case <-over:
			return
		case <-ticker.C:
		}
	}
}

// newClient makes the first Client, whose calls share round trips, or the second, whose calls go by themselves.
func (p *process) newClient(i int) *redislock.Client {
	opts := []redislock.ClientOption{redislock.WithTracer(tracer)}
	if i == 1 {
		opts = append(opts, redislock.WithSeparateCalls())
	}
	return p.backend.newClient(opts...)
}

func (p *process) client(i int) *redislock.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[i]
}

// replaceClient closes a Client while it is used, and puts another in its place.
func (p *process) replaceClient(i int) {
	p.mu.Lock()
	old := p.clients[i]
	p.clients[i] = p.newClient(i)
	p.mu.Unlock()
	start := clock.Now()
	_ = old.Close()
	p.log.Write(history.Event{Kind: history.Done, At: clock.Now(), Start: start, Name: "Close", Outcome: "ok", Op: p.nextOp()})
}

func (p *process) nextOp() string { return fmt.Sprintf("%s/%d", p.Worker, p.count.Add(1)) }
