package check

import (
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/history"
)

// prompt: a call returns soon after its ctx has ended. A release whose ctx had ended before waits for a second. Processes
// that stood still are not looked at.
func prompt(m *model, r *Result) {
	const (
		soon  = int64(500 * time.Millisecond)
		still = int64(250 * time.Millisecond)
	)
	for _, e := range m.done {
		if e.Name == "Worker" {
			r.add(Violation{Check: Prompt, At: e.At, Ops: []string{e.Op}, What: fmt.Sprintf("the worker %s %s", e.Op, e.Outcome)})
			continue
		}
		if e.Limit == 0 || e.At <= e.Limit || m.stalled(e.Worker, e.Limit, e.At, still) {
			continue
		}
		r.Checked[Prompt]++
		allowed := e.Limit + soon
		switch {
		case e.Limit <= e.Start:
			allowed = e.Start + 3*soon
		case e.Name == "Do": // its function may take a moment to notice, and then Do releases
			allowed += 4 * soon
		}
		if e.At > allowed {
			r.add(Violation{
				Check: Prompt, At: e.At, Ops: []string{e.Op},
				What: fmt.Sprintf("%s of %s returned %s after the end of its ctx", e.Name, e.Op, seconds(e.At-e.Limit)),
			})
		}
	}
}

// failures: a call that no fault touched does not fail with an error of Redis or the network.
func failures(m *model, r *Result) {
	for _, e := range m.done {
		if !m.quiet(e.Worker, e.Start, e.At, settle) {
			continue
		}
		r.Checked[Errors]++
		if isFailure(e) {
			r.add(Violation{
				Check: Errors, At: e.At, Ops: []string{e.Op},
				What: fmt.Sprintf("%s of %s failed without a fault: %s", e.Name, e.Op, e.Outcome),
			})
		}
	}
}

func isFailure(e history.Event) bool {
	switch e.Outcome {
	case "redis", "network", "unexpected":
		return true
	}
	return false
}
