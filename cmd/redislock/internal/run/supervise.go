package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
)

// supervisor watches a running command and its locks. It passes signals on, and ends the command before the locks end. It
// belongs to one goroutine.
type supervisor struct {
	*connect.Target

	flags   *runFlags
	hold    *hold
	child   *job.Child
	signals *job.Signals

	until  time.Time // the hold's, when it was last seen valid
	asked  bool      // a signal has asked this process to end
	over   bool      // the command has been told to end
	killAt time.Time
	killed bool

	reports sync.WaitGroup // of what is being printed
}

// A wall clock jumps when the machine was suspended, and no timer notices that.
const clockInterval = time.Second

// sweepInterval is how often to look for processes that have left the group of a command that is being ended.
const sweepInterval = 100 * time.Millisecond

// margin is how long before the end of the locks SIGKILL is sent, so that the command is gone by then.
func (s *supervisor) margin() time.Duration { return min(s.flags.TTL/20, 100*time.Millisecond) }

// supervise returns when the command has ended and the locks are released.
func (s *supervisor) supervise() error {
	s.until = s.hold.until()
	s.signals.AddJobControl()
	lost := s.hold.alive.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case end := <-s.child.Ended:
			return s.finish(end)
		case sig := <-s.child.Stopped:
			s.check()
			s.child.Suspend(sig)
		case sig := <-s.signals.Caught:
			s.check() // this process may have been stopped; the command goes on only if the locks are there
			s.asked = s.asked || sig == syscall.SIGINT || sig == syscall.SIGTERM
			s.child.Pass(sig)
			s.signals.AddJobControl()
		case <-s.child.Awake:
			s.check()
			s.child.Resume()
			s.signals.AddJobControl()
		case <-lost:
			lost = nil
			s.check()
		case <-timer.C:
			s.check()
		}
		timer.Reset(s.next())
	}
}

// next returns when to look at the clocks again.
func (s *supervisor) next() time.Duration {
	switch {
	case s.killed:
		return clockInterval
	case s.over:
		return max(min(remaining(s.killAt), sweepInterval), 0)
	}
	return max(min(s.hold.left()-s.flags.grace-s.margin(), clockInterval), time.Millisecond)
}

// remaining returns the time until t, by the clock that says less: the monotonic clock stands still while the machine is
// suspended, and the wall clock may be set back.
func remaining(t time.Time) time.Duration {
	return min(time.Until(t), t.Round(0).Sub(time.Now().Round(0)))
}

// check ends the command if that is due: if the locks are lost, or if the grace period must begin now to end before the
// locks do.
func (s *supervisor) check() {
	now := time.Now()
	if s.over {
		switch {
		case s.killed:
		case remaining(s.killAt) <= 0:
			s.kill()
		default:
			s.child.Sweep()
		}
		return
	}
	if why := s.hold.lost(); why != nil {
		last := s.until.Add(-s.margin()) // the other locks may be held until then
		s.end(why, now.Add(min(s.flags.grace, remaining(last))))
	} else if left := s.hold.left() - s.margin(); left <= s.flags.grace {
		s.end(nil, now.Add(left))
	} else {
		s.until = s.hold.until()
	}
}

// end sends SIGTERM, or SIGKILL if there is no time for that, and then reports why. nil stands for an overdue renewal.
func (s *supervisor) end(why error, killAt time.Time) {
	s.over, s.killAt = true, killAt
	if remaining(killAt) <= 0 {
		s.kill()
	} else {
		s.child.Terminate()
	}
	s.reports.Go(func() {
		if why == nil {
			s.Complain(fmt.Errorf("the lock could not be renewed, so the command is ended: %w", s.hold.trouble()))
			return
		}
		s.Complain(fmt.Errorf("the lock is lost, so the command is ended: %w", why))
	})
}

// report prints an error without waiting for that: a stderr that blocks must not delay a SIGKILL.
func (s *supervisor) report(err error) { s.reports.Go(func() { s.Complain(err) }) }

// awaitReports waits for what is being printed, for a second at most.
func (s *supervisor) awaitReports() {
	printed := make(chan struct{})
	go func() {
		s.reports.Wait()
		close(printed)
	}()
	select {
	case <-printed:
	case <-time.After(time.Second):
	}
}

func (s *supervisor) kill() {
	s.killed = true
	s.child.Kill()
}

// finish releases the locks after the end of the command, and returns how the program ends.
func (s *supervisor) finish(end job.End) error {
	if s.over || s.asked || end.Signal != 0 {
		s.endLeft(s.asked || end.Signal == syscall.SIGINT)
	}
	s.child.Close()
	if s.over {
		_ = s.hold.release()
		s.awaitReports()
		return cli.Exit(s.flags.lostCode)
	}
	why := s.hold.lost()
	err := s.hold.release()
	s.awaitReports()
	if why == nil && errors.Is(err, redislock.ErrLockNotHeld) {
		why = err
	}
	if why != nil {
		return &cli.Error{Code: s.flags.lostCode, Err: fmt.Errorf("the lock was lost before the command ended: %w", why)}
	}
	if err != nil {
		s.Complain(fmt.Errorf("cannot release the lock, which expires within %v: %w", s.flags.TTL, err))
	}
	if s.child.InterruptJob(end) {
		return job.SignalError{Signal: end.Signal}
	}
	if end.Code != 0 {
		return cli.Exit(end.Code)
	}
	return nil
}

// endLeft ends what the command has left: it also ran under the locks. What has got the signal already, from redislock or by
// Ctrl-C, has half of the grace period before it gets SIGTERM. endLeft gives up a second after the SIGKILL.
func (s *supervisor) endLeft(hasSignal bool) {
	if s.child.Gone() {
		return
	}
	asked := s.over
	termAt := time.Now()
	if !s.over {
		grace := max(min(s.flags.grace, s.hold.left()-s.margin()), 0)
		s.killAt = termAt.Add(grace)
		if hasSignal {
			termAt = termAt.Add(grace / 2)
		}
	}
	const pause = 20 * time.Millisecond
	for kills := 0; kills < int(time.Second/pause) && !s.child.Gone(); time.Sleep(pause) {
		switch {
		case remaining(s.killAt) <= 0:
			s.kill() // again and again: a process may have started another one meanwhile
			kills++
		case !asked && remaining(termAt) <= 0:
			asked = true
			s.child.Terminate()
		default:
			s.child.Sweep()
		}
	}
}

// trouble finds out why a renewal is overdue.
func (h *hold) trouble() error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	err := connect.Ping(ctx, h.Client)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no answer from Redis")
	case err != nil:
		return err
	case h.kept == nil:
		return errors.New("its holder does not renew it")
	}
	return errors.New("answers come late")
}
