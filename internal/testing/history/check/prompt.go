package check

import (
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

// LimitIsOver reports whether the ctx of a call had ended when the call looked at it. A call looks at its ctx when it
// begins, but some time passes between the worker's clock and that look: a Release was seen whose ctx ended in between.
func LimitIsOver(e history.Event) bool {
	const beginning = int64(10 * time.Millisecond)
	return e.Limit > 0 && e.Limit <= e.Start+beginning
}

// prompt: a call returns soon after its ctx has ended. A Release whose ctx had ended before waits for a second. The
// check does not look at processes that stood still.
func prompt(m *model, r *Result) {
	const (
		soon  = int64(500 * time.Millisecond)
		still = int64(250 * time.Millisecond)
	)
	for _, e := range m.done {
		if e.Name == "Worker" {
			r.add(Prompt, e.At, []string{e.Op}, "the worker %s %s", e.Op, e.Outcome)
			continue
		}
		if e.Limit == 0 || e.At <= e.Limit || m.stalled(e.Worker, e.Limit, e.At, still) {
			continue
		}
		r.Checked[Prompt]++
		allowed := max(e.Limit, e.Start) + soon
		switch {
		case e.Name == "Release" && LimitIsOver(e):
			allowed = e.Start + 3*soon
		case e.Name == "Do": // its function may take a moment to notice, and then Do releases
			allowed += 4 * soon
		}
		if e.At > allowed {
			r.add(Prompt, e.At, []string{e.Op}, "%s of %s returned %s after the end of its ctx", e.Name, e.Op, seconds(e.At-e.Limit))
		}
	}
}

// failures: a call that no fault touched does not fail with an error of Redis or the network.
func failures(m *model, r *Result) {
	const patience = int64(150 * time.Millisecond) // to a worker that stands still, the servers of a quorum seem silent
	for _, e := range m.done {
		if !m.quiet(e.Worker, e.Start, e.At, settle) ||
			len(m.beats[e.Worker]) > 0 && m.stalled(e.Worker, e.Start, e.At, patience) {
			continue
		}
		r.Checked[Errors]++
		if isFailure(e) {
			r.add(Errors, e.At, []string{e.Op}, "%s of %s failed without a fault: %s", e.Name, e.Op, e.Outcome)
		}
	}
}

func isFailure(e history.Event) bool {
	switch e.Outcome {
	case "redis", "network", "unknown", "unexpected":
		return true
	}
	return false
}
