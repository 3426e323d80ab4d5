// Package round runs one round of torture: it starts servers, proxies and workers, does what a plan says, and collects the
// histories.
package round

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
	"github.com/redislock/redislock/torture/internal/plan"
	"github.com/redislock/redislock/torture/internal/store"
	"github.com/redislock/redislock/torture/internal/topology"
	"github.com/redislock/redislock/torture/internal/worker"
)

// Options say what a round is like.
type Options struct {
	Topology   string
	Seed       uint64
	Length     time.Duration // of the faults and the work; the start and the end take longer
	Pause      time.Duration // between two faults, on average
	Workers    int
	Goroutines int           // of each worker
	Clients    []string      // of the workers, in turn: some of worker.Clients
	Program    string        // to start as a worker
	Aim        []plan.Choice // faults in place of those of the servers; nil for those of the topology
	Scene      string        // see worker.Config
	Dir        string        // an empty directory for the files of the round

	// Enough reports whether the round may end at once, given the events so far. It is called every few seconds. Nil lets
	// the round go on.
	Enough func([]history.Event) bool
}

// Progress is how far a round is. It is safe for concurrent use.
type Progress struct{ Grants, Faults atomic.Int64 }

// How many groups of keys there are, how many keys in each group, and how many of these are contended.
const groups, keysPerGroup, hotKeys = 3, 60, 8

// round is a round under way.
type round struct {
	Options

	topology topology.Topology
	log      *history.Writer
	store    *store.Store
	slots    []*slot
	progress *Progress
	grace    time.Duration // of the guard; 0 without one
	until    int64         // the workers begin nothing after it
	enough   atomic.Bool

	handovers atomic.Int64 // planned failovers that are under way or have just ended

	mu      sync.Mutex // protects the fields below
	readers []*history.Reader
	events  []history.Event
}

// The names of the files and of the worker that belong to no slot.
const own, last = "torture", "last"

// Run runs a round and returns all events. It leaves no process behind. If ctx ends, it returns ctx.Err().
func Run(ctx context.Context, o Options, progress *Progress) (events []history.Event, err error) {
	r := &round{Options: o, progress: progress}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.start(); err != nil {
		return nil, err
	}
	var side sync.WaitGroup
	over := make(chan struct{})
	side.Go(func() { r.sample(over) })
	for _, s := range r.topology.Servers() { // from now on, because a busy machine may take long to start the workers
		side.Go(func() { r.ping(s, over) })
	}
	if err = r.startWorkers(); err == nil {
		working, cancel := context.WithTimeout(ctx, o.Length)
		defer cancel()
		side.Go(func() { r.collect(over, cancel) })
		r.breakThings(working)
		err = ctx.Err()
	}
	if err == nil && !r.enough.Load() {
		err = r.end()
	}
	close(over)
	side.Wait()
	if err != nil {
		return nil, err
	}
	return r.events, r.read()
}

// start starts the servers and the store.
func (r *round) start() (err error) {
	if r.log, err = history.Create(filepath.Join(r.Dir, own), own); err != nil {
		return err
	}
	if err := r.follow(own); err != nil {
		return err
	}
	if r.topology, err = topology.Start(r.Topology); err != nil {
		return err
	}
	r.grace = r.topology.Endpoint().Guard.Grace()
	r.store, err = store.Listen(filepath.Join(r.Dir, "store"), r.log)
	return err
}

// startWorkers starts the workers.
func (r *round) startWorkers() error {
	r.until = clock.Now() + int64(r.Length)
	if now := clock.Now(); r.grace > 0 { // a guard cannot know that nothing has been locked yet
		r.log.Write(history.Event{Kind: history.Fault, At: now, End: now, Name: "first-use", Outcome: "done", Grace: r.grace})
	}
	for i := range r.Workers {
		s, err := r.newSlot(i)
		if err != nil {
			return err
		}
		r.slots = append(r.slots, s)
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

// end waits until the workers have ended, and looks at what they have left behind.
func (r *round) end() error {
	if err := r.topology.Heal(); err != nil {
		return fmt.Errorf("the servers could not be healed: %w", err)
	}
	for _, s := range r.slots {
		s.finish()
	}
	if err := r.final(); err != nil {
		return err
	}
	file := filepath.Join(r.Dir, last)
	config := r.config(last, r.Clients[0], 0)
	if err := config.Write(file + ".json"); err != nil {
		return err
	}
	p, err := startProgram(r.Dir, last, r.Program, last, file+".json")
	if err != nil {
		return err
	}
	select {
	case <-p.Exited():
	case <-time.After(time.Minute):
		_ = p.Kill()
		return errors.New("the last obtains did not end")
	}
	return r.follow(last)
}

// config returns the configuration of a worker.
func (r *round) config(name, client string, seed uint64) *worker.Config {
	return &worker.Config{
		Client: client, Worker: name, Seed: seed, Endpoint: r.topology.Endpoint(), Store: filepath.Join(r.Dir, "store"),
		History: filepath.Join(r.Dir, name), Goroutines: r.Goroutines, Until: r.until,
		Groups: groups, Keys: keysPerGroup, Hot: hotKeys, Scene: r.Scene,
	}
}

// follow reads a history from now on.
func (r *round) follow(name string) error {
	reader, err := history.Open(filepath.Join(r.Dir, name))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers = append(r.readers, reader)
	return nil
}

// collect reads the histories until over is closed. It calls stop if there is enough.
func (r *round) collect(over chan struct{}, stop func()) {
	for n := 1; ; n++ {
		// A worker that is granted a lock writes that after the former holder has written that it gave the lock up. So the
		// histories have, for each event until now, all that led to it, although they are read one after the other.
		now := clock.Now()
		_ = r.read() // an error in a history shows again at the end
		if r.Enough != nil && n%10 == 0 && r.Enough(r.before(now)) {
			r.enough.Store(true)
			stop()
			return
		}
		select {
		case <-over:
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// before returns the events up to a time.
func (r *round) before(now int64) []history.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e history.Event) bool { return e.At > now })
}

// read reads what was written since the last call.
func (r *round) read() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reader := range r.readers {
		events, err := reader.Read()
		r.events = append(r.events, events...)
		if err != nil {
			return err
		}
		for _, e := range events {
			switch e.Kind {
			case history.Grant:
				r.progress.Grants.Add(1)
			case history.Fault:
				r.progress.Faults.Add(1)
			}
		}
	}
	return nil
}

// close ends everything that was started.
func (r *round) close() error {
	var errs []error
	for _, s := range r.slots {
		errs = append(errs, s.close())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.topology != nil {
		errs = append(errs, r.topology.Close())
	}
	for _, reader := range r.readers {
		errs = append(errs, reader.Close())
	}
	if r.log != nil {
		errs = append(errs, r.log.Close())
	}
	return errors.Join(errs...)
}

// Plan returns the faults of a round with these options.
func (o Options) Plan() []plan.Fault {
	menu := plan.Menu(o.Topology)
	if o.Aim != nil {
		menu = plan.Aimed(o.Aim)
	}
	if topology.CanMoveClocks() && o.Topology == "one" {
		menu = append(menu, plan.Clocks...)
	}
	return plan.New(o.Seed, menu, o.Length, o.Pause)
}

// MakeDir makes the directory of a round.
func MakeDir(parent string, n int) (string, error) {
	dir := filepath.Join(parent, fmt.Sprintf("round-%03d", n))
	return dir, os.MkdirAll(dir, 0o700)
}
