package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/job"
	"github.com/redislock/redislock/cmd/redislock/internal/locking"
	"github.com/redislock/redislock/internal/lease"
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
	over   verdict   // why the command was told to end
	killAt time.Time
	killed bool

	reports sync.WaitGroup // of what is being printed
}

// verdict is why a command was told to end. A later one counts more than an earlier one.
type verdict int

const (
	noVerdict   verdict = iota
	heldTooLong         // it has held the locks for as long as --max-hold allows; they are renewed until it has ended
	lockLost            // the locks are lost, or about to be
)

const (
	clockInterval = time.Second            // a wall clock jumps when the machine was suspended, and no timer notices that
	sweepInterval = 100 * time.Millisecond // how often to look for processes that have left the group of a command
)

// margin is how long before the end of the locks SIGKILL is sent, so that the command is gone by then.
func (s *supervisor) margin() time.Duration { return min(s.flags.TTL/20, 100*time.Millisecond) }

func (s *supervisor) supervise() error {
	s.until = s.hold.until()
	s.signals.AddJobControl()
	ended := s.hold.alive.Done()
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
		case <-ended:
			ended = nil
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
	case s.over != noVerdict:
		return max(min(remaining(s.killAt), sweepInterval), 0)
	}
	next := min(s.hold.left()-s.flags.grace-s.margin(), clockInterval)
	if s.flags.maxHold > 0 {
		next = min(next, s.holdLeft())
	}
	return max(next, time.Millisecond)
}

func (s *supervisor) holdLeft() time.Duration {
	return time.Until(s.hold.complete.Add(s.flags.maxHold))
}

// remaining returns the time until t; see lease.Left.
func remaining(t time.Time) time.Duration { return lease.Left(time.Now(), t) }

// check ends the command if that is due, by a loss, by the time that the grace period needs, or by --max-hold.
func (s *supervisor) check() {
	if s.over < lockLost {
		s.judge()
	}
	switch {
	case s.over == noVerdict, s.killed:
	case remaining(s.killAt) <= 0:
		s.kill()
	default:
		s.child.Sweep()
	}
}

func (s *supervisor) judge() {
	now := time.Now()
	left := s.hold.left() - s.margin()
	switch why := s.hold.lost(); {
	case why != nil:
		last := s.until.Add(-s.margin()) // the other locks may be held until then
		s.end(lockLost, now.Add(min(s.flags.grace, remaining(last))))
		s.report(fmt.Errorf("the lock is lost, so the command is ended: %w", why))
		return
	case left <= s.flags.grace:
		s.end(lockLost, now.Add(left))
		s.reports.Go(func() {
			s.Complain(fmt.Errorf("the lock could not be renewed, so the command is ended: %w", s.hold.trouble()))
		})
		return
	case s.over == noVerdict && s.flags.maxHold > 0 && s.holdLeft() <= 0:
		s.end(heldTooLong, now.Add(s.flags.grace))
		s.report(fmt.Errorf("the command has held the lock for %v, as long as --max-hold allows, so it is ended", s.flags.maxHold))
	}
	s.until = s.hold.until()
}

// end sends SIGTERM, or SIGKILL if there is no time for that. A second verdict can only bring the SIGKILL forward.
func (s *supervisor) end(v verdict, killAt time.Time) {
	first := s.over == noVerdict
	s.over = v
	if first || killAt.Before(s.killAt) {
		s.killAt = killAt
	}
	switch {
	case s.killed:
	case remaining(s.killAt) <= 0:
		s.kill()
	case first:
		s.child.Terminate()
	}
}

// report prints an error without waiting for that: a stderr that blocks must not delay a SIGKILL.
func (s *supervisor) report(err error) { s.reports.Go(func() { s.Complain(err) }) }

func (s *supervisor) kill() {
	s.killed = true
	s.child.Kill()
}

// finish gives up the locks after the end of the command, and returns how the program ends.
func (s *supervisor) finish(end job.End) error {
	if s.over != noVerdict || s.asked || end.Signal != 0 {
		s.endLeft(s.asked || end.Signal == syscall.SIGINT)
	}
	s.child.Close()
	why := s.giveUp()
	locking.Within(time.Second, s.reports.Wait) // a stderr that blocks must not hold up the end
	switch {
	case s.over == lockLost:
		return cli.Exit(s.flags.lostCode)
	case why != nil:
		return &cli.Error{Code: s.flags.lostCode, Err: fmt.Errorf("the lock was lost before the command ended: %w", why)}
	case s.over == heldTooLong:
		return cli.Exit(cli.TooLong)
	case s.child.InterruptJob(end):
		return job.SignalError{Signal: end.Signal}
	case end.Code != 0:
		return cli.Exit(end.Code)
	}
	return nil
}

// giveUp releases the locks, or leaves them for the rest of --at-least. It returns why they were lost before, if they were.
func (s *supervisor) giveUp() (why error) {
	h := s.hold
	ctx, end := h.ending(s.signals)
	defer end()
	if why = h.lost(); why == nil && h.watched != nil {
		looking, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := h.watched.look(looking)
		cancel()
		if errors.Is(err, redislock.ErrLockNotHeld) { // a Redis that does not answer does not mean a loss
			why = err
		}
	}
	until := h.complete.Add(s.flags.atLeast)
	if why == nil && s.over != lockLost && h.kept != nil && time.Until(until) > 0 {
		if why = h.leave(ctx, until, s.report); why == nil {
			s.flags.log.left(h.kept.Keys(), until)
		}
		if !errors.Is(why, redislock.ErrLockNotHeld) {
			s.flags.complain(h, why)
			return nil
		}
	}
	err := h.release(ctx, s.report)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return cmp.Or(why, err)
	}
	s.flags.complain(h, err)
	return why
}

// endLeft ends what the command has left: it also ran under the locks. What has got the signal already, from redislock or by
// Ctrl-C, has half of the grace period before it gets SIGTERM. endLeft gives up a second after the SIGKILL.
func (s *supervisor) endLeft(hasSignal bool) {
	if s.child.Gone() {
		return
	}
	asked := s.over != noVerdict
	termAt := time.Now()
	if !asked {
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

func (h *hold) trouble() error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	switch err := connect.Ping(ctx, h.Client); {
	case err == nil && h.kept == nil:
		return errors.New("its holder does not renew it")
	case err == nil:
		return errors.New("answers come late")
	case connect.IsSilent(err):
		return errors.New("no answer from Redis")
	default:
		return err
	}
}
