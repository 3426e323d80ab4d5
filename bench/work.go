package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// drain is how long a worker waits for contenders that still wait for a lock when the time is over.
const drain = 5 * time.Second

// work is the life of a worker: see the type of that name. It returns when its input has ended.
func work(in io.Reader, out io.Writer) error {
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := from.Decode(&j); err != nil {
		return fmt.Errorf("worker: job: %w", err)
	}
	known := j.On.contenders()
	i := slices.IndexFunc(known, func(c contender) bool { return c.name == j.Contender })
	if i < 0 {
		return fmt.Errorf("worker: nobody is called %q", j.Contender)
	}
	obtain, err := known[i].open(j.Addrs)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	// One lock on other keys opens a connection and loads the scripts.
	for i, set := range j.Sets {
		warmUp := make([]string, len(set))
		for k, key := range set {
			warmUp[k] = fmt.Sprintf("%s:warm-up:%d:%d", key, j.First, i)
		}
		if err := obtainAndRelease(obtain, warmUp); err != nil {
			return fmt.Errorf("worker: %w", err)
		}
	}
	if err := to.Encode(true); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	var start time.Time
	if err := from.Decode(&start); err != nil {
		return fmt.Errorf("worker: start: %w", err)
	}
	ended := make(chan struct{}) // the input: the parent has ended, or wants this process to end
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, in)
	}()
	o, err := newContest(&j, obtain, start).run(ended)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if err := to.Encode(o); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	<-ended
	return nil
}

// obtainAndRelease waits for a lock, and releases it.
func obtainAndRelease(obtain obtainFunc, keys []string) error {
	release, err := obtain(context.Background(), keys)
	if err != nil {
		return err
	}
	return release()
}

// contest is the contending within one worker.
type contest struct {
	*job
	obtain     obtainFunc
	start, end time.Time

	mu      sync.Mutex // protects the fields below
	outcome outcome
	since   []time.Time // when each contender began to wait; zero if it does not wait
	err     error
}

func newContest(j *job, obtain obtainFunc, start time.Time) *contest {
	return &contest{
		job: j, obtain: obtain, start: start, end: start.Add(j.Duration),
		outcome: outcome{Won: make([]float64, j.Contenders)}, since: make([]time.Time, j.Contenders),
	}
}

// run lets the contenders contend. It returns when all are done, or when drain has passed after the end.
func (c *contest) run(ended <-chan struct{}) (outcome, error) {
	time.Sleep(time.Until(c.start))
	var wait sync.WaitGroup
	for i := range c.Contenders {
		wait.Go(func() {
			if err := c.contend(i); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.err = errors.Join(c.err, err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wait.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ended:
	case <-time.After(time.Until(c.end) + drain):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.outcome
	o.Waits = slices.Clone(o.Waits)
	for _, since := range c.since {
		if !since.IsZero() {
			o.Stuck++
			o.Waits = append(o.Waits, millis(time.Since(since)))
		}
	}
	return o, c.err
}

// contend takes and releases locks until the time is over.
func (c *contest) contend(i int) error {
	for {
		began := time.Now()
		if !began.Before(c.end) {
			return nil
		}
		c.note(func() { c.since[i] = began })
		release, err := c.obtain(context.Background(), c.Sets[(c.First+i)%len(c.Sets)])
		granted := time.Now()
		c.note(func() { c.since[i] = time.Time{} })
		if err != nil {
			return err
		}
		c.note(func() {
			c.outcome.Waits = append(c.outcome.Waits, millis(granted.Sub(began)))
			if granted.Before(c.end) {
				c.outcome.Won[i]++
			} else {
				c.outcome.Late++
			}
		})
		time.Sleep(c.Hold)
		if err := release(); err != nil {
			return err
		}
		if c.Rest > 0 {
			time.Sleep(min(rand.N(2*c.Rest), time.Until(c.end)))
		}
	}
}

// note calls f under mu.
func (c *contest) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// millis returns d in ms.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
