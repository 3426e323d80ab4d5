// Package check finds out from histories alone whether the promises of the library were kept. It does not import the
// library, and knows only what the events of package history mean.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
)

// The checks.
const (
	Exclusion = "exclusion" // no two valid holds of one key, and none that is valid again after another one was granted
	Limits    = "limits"    // no more valid holds of a key that several may hold than each of them allows
	Fence     = "fence"     // fencing tokens rise from grant to grant
	Store     = "store"     // the guarded store takes no lower token after a higher one, and no valid holder's is lower
	Kept      = "kept"      // the context of a kept lock has ended by Until
	Lease     = "lease"     // Until is not later than the expiry that Redis reports
	Loss      = "loss"      // nothing is lost before Until
	Line      = "line"      // nobody overtakes a live waiter
	Served    = "served"    // a live waiter whose keys are free is served
	Prompt    = "prompt"    // a call returns soon after its ctx has ended
	Errors    = "errors"    // without a fault, no call fails with an error of Redis or the network
	Repair    = "repair"    // a kept lock is soon on all servers of a quorum again
	Leftover  = "leftover"  // no key outlives its owner, or has no expiry; when all is over, everything can be locked
	Circle    = "circle"    // no circle of waiters, each of which holds what the one before wants, lasts

	// FalseCircle: a call that ends because of a circle was in one, and came last.
	FalseCircle = "false-circle"
)

// All are the names of all checks.
var All = []string{
	Exclusion, Limits, Fence, Store, Kept, Lease, Loss, Line, Served, Prompt, Errors, Repair, Leftover, Circle, FalseCircle,
}

// Violation is a promise that was not kept.
type Violation struct {
	Check string
	At    int64
	What  string
	Ops   []string // the calls that it is about
}

// Result is what the checks found.
type Result struct {
	Violations []Violation // by time

	// Excused are those before which Redis had forgotten what it acknowledged, or had ended leases early. No lock can make
	// up for that.
	Excused []Violation

	// Checked counts, for each check, how many cases it has looked at. A check that looked at nothing has proved nothing.
	Checked map[string]int

	LateRefused int // writes of former holders that the guarded store refused
	LateTaken   int // writes of former holders after which nobody else had written
}

// Run runs all checks on the events of one round, in any order.
func Run(events []history.Event) *Result {
	m := newModel(events)
	r := &Result{Checked: map[string]int{}}
	for _, check := range []func(*model, *Result){
		exclusion, turns, fences, fencedStore, kept, leases, losses, lines, served, prompt, failures, repairs, leftovers, circles,
		falseCircles,
	} {
		check(m, r)
	}
	slices.SortStableFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return r
}

// add notes a violation that is about the calls ops.
func (r *Result) add(check string, at int64, ops []string, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{check, at, fmt.Sprintf(format, args...), ops})
}

// addUnless does what add does, but keeps an excused violation apart.
func (r *Result) addUnless(excused bool, check string, at int64, ops []string, format string, args ...any) {
	if excused {
		r.Excused = append(r.Excused, Violation{check, at, fmt.Sprintf(format, args...), ops})
		return
	}
	r.add(check, at, ops, format, args...)
}

// Text says what is wrong, with the events within a second of it.
func (v Violation) Text(events []history.Event) string {
	lines := []string{fmt.Sprintf("%s: %s", v.Check, v.What)}
	for _, e := range Evidence(events, v, int64(time.Second), int64(time.Second)) {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n\t")
}

// Evidence returns the events of the calls of a violation, those at its time, and the faults around it, in the order of
// time. before and after are in ns.
func Evidence(events []history.Event, v Violation, before, after int64) []history.Event {
	var found []history.Event
	for _, e := range events {
		switch {
		case e.Kind == history.Fault && e.At <= v.At+after && e.End >= v.At-before,
			e.At == v.At, e.Op != "" && slices.Contains(v.Ops, e.Op):
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	return found
}

// seconds prints a duration in ns.
func seconds(ns int64) string { return fmt.Sprintf("%.3f s", float64(ns)/1e9) }
