package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
)

// at turns seconds into the time of an event.
func at(s float64) int64 { return int64(s * 1e9) }

// edit changes an event.
type edit func(*history.Event)

func with(e history.Event, edits ...edit) history.Event {
	for _, change := range edits {
		change(&e)
	}
	if e.Worker == "" {
		e.Worker, _, _ = strings.Cut(e.Op, "/")
	}
	return e
}

// grant is a hold that is believed in from from until until. The call began 10 ms before.
func grant(op string, from, until float64, keys string, edits ...edit) history.Event {
	return with(history.Event{
		Kind: history.Grant, At: at(from), Op: op, Name: "Obtain", Keys: strings.Split(keys, ","), Token: op, Start: at(from - 0.01),
		Until: at(until), TTL: 4 * time.Second,
	}, edits...)
}

func claim(op string, when, until float64) history.Event {
	return with(history.Event{Kind: history.Claim, At: at(when), Op: op, Until: at(until)})
}

func alive(op string, when, until float64) history.Event {
	return with(history.Event{Kind: history.Alive, At: at(when), Op: op, Until: at(until), Bound: at(until)})
}

func done(name, op string, when float64, outcome string, edits ...edit) history.Event {
	return with(history.Event{
		Kind: history.Done, Name: name, Op: op, Start: at(when - 0.001), At: at(when), Outcome: outcome,
	}, edits...)
}

func fault(name, target string, from, to float64, edits ...edit) history.Event {
	return with(history.Event{Kind: history.Fault, Name: name, Target: target, At: at(from), End: at(to), Worker: "torture"}, edits...)
}

func write(op, key string, when float64, token int64, outcome string) history.Event {
	return with(history.Event{Kind: history.Write, Op: op, FenceKey: key, At: at(when), Fence: token, Outcome: outcome})
}

// sample is what Redis holds: "key owner ttl", with the ttl in seconds. The owner "-" has no name.
func sample(when float64, held ...string) history.Event {
	e := history.Event{Kind: history.Sample, Start: at(when), At: at(when + 0.001), Worker: "torture"}
	for _, text := range held {
		var h history.Held
		var s float64
		if _, err := fmt.Sscan(text, &h.Key, &h.Owner, &s); err != nil {
			panic(err)
		}
		h.TTL, h.Owner = time.Duration(s*1e9), strings.Trim(h.Owner, "-")
		e.Held = append(e.Held, h)
	}
	return e
}

func lossy(e *history.Event)    { e.Lossy = true }
func guarded(e *history.Event)  { e.Lossy, e.Grace = true, 2*time.Second }
func fresh(e *history.Event)    { e.Fresh = true }
func exact(e *history.Event)    { e.Exact = true }
func onQuorum(e *history.Event) { e.Need = 3 }
func lost(e *history.Event)     { e.Lost = true }
func custom(token string) edit  { return func(e *history.Event) { e.Token, e.Custom = token, true } }
func fenced(key string, token int64) edit {
	return func(e *history.Event) { e.FenceKey, e.Fence = key, token }
}
func begun(s float64) edit   { return func(e *history.Event) { e.Start = at(s) } }
func limit(s float64) edit   { return func(e *history.Event) { e.Limit = at(s) } }
func about(op string) edit   { return func(e *history.Event) { e.Op = op } }
func left(s float64) edit    { return func(e *history.Event) { e.Left = time.Duration(s * 1e9) } }
func named(name string) edit { return func(e *history.Event) { e.Name = name } }

// queued makes a call one that waited in line, from its first refusal on.
func queued(began, refused float64) edit {
	return func(e *history.Event) { e.Queue, e.Start, e.Refused = true, at(began), at(refused) }
}

// wants names the keys of a call that was not granted.
func wants(keys string) edit {
	return func(e *history.Event) { e.Keys, e.TTL = strings.Split(keys, ","), 4*time.Second }
}

// living adds the beats of workers that run from 0 s until s without standing still.
func living(s float64, workers ...string) []history.Event {
	var beats []history.Event
	for _, worker := range workers {
		for when := at(0.001); when < at(s); when += at(0.05) {
			beats = append(beats, history.Event{Kind: history.Beat, At: when, Worker: worker})
		}
	}
	return beats
}

// without removes the beats of a worker between two times.
func without(events []history.Event, worker string, from, to float64) []history.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
		return e.Kind == history.Beat && e.Worker == worker && e.At > at(from) && e.At < at(to)
	})
}

func all(parts ...[]history.Event) []history.Event { return slices.Concat(parts...) }

func the(events ...history.Event) []history.Event { return events }

// a story is a history made by hand, and the violations that it has.
type story struct {
	what    string
	events  []history.Event
	want    int // violations of the check that the test is about; there must be no others
	excused int
}

func tell(t *testing.T, name string, stories []story) {
	t.Helper()
	wrong := 0
	for _, s := range stories {
		if s.want > 0 {
			wrong++
		}
		slices.Reverse(s.events) // the order of the events must make no difference
		r := check.Run(s.events)
		got, excused := 0, 0
		for _, v := range r.Violations {
			if v.Check == name {
				got++
			} else {
				t.Errorf("%s: %s: %s", s.what, v.Check, v.What)
			}
		}
		for _, v := range r.Excused {
			if v.Check == name {
				excused++
			}
		}
		if got != s.want || excused != s.excused {
			t.Errorf("%s: %d violations and %d excused, want %d and %d: %v", s.what, got, excused, s.want, s.excused, r.Violations)
		}
		if s.want > 0 && len(check.Evidence(s.events, r.Violations[0], at(1), at(1))) == 0 {
			t.Errorf("%s: there is no evidence", s.what)
		}
	}
	if wrong < 2 {
		t.Errorf("only %d wrong histories are shown to the check %s", wrong, name)
	}
}

func TestExclusion(t *testing.T) {
	forget := func(from, to float64) history.Event { return fault("restart-server", "", from, to, lossy) }
	tell(t, check.Exclusion, []story{
		{"one after the other", the(grant("w1/1", 1, 2, "a"), grant("w2/1", 2, 3, "a")), 0, 0},
		{"other keys", the(grant("w1/1", 1, 3, "a"), grant("w2/1", 2, 4, "b")), 0, 0},
		{"released early", the(grant("w1/1", 1, 9, "a"), claim("w1/1", 2, 0), grant("w2/1", 2.5, 4, "a")), 0, 0},
		{"the same token", the(grant("w1/1", 1, 3, "a", custom("t")), grant("w1/2", 2, 4, "a,b", custom("t"))), 0, 0},
		{"granted too late to be believed in", the(grant("w1/1", 3, 2, "a", begun(1)), grant("w2/1", 2.5, 4, "a")), 0, 0},
		{"renewed, and then another", the(grant("w1/1", 1, 2, "a"), alive("w1/1", 1.5, 3), grant("w2/1", 3, 4, "a")), 0, 0},
		{"shortened, and then another", the(grant("w1/1", 1, 9, "a"), claim("w1/1", 2, 3), grant("w2/1", 3, 4, "a")), 0, 0},

		{"two at once", the(grant("w1/1", 1, 3, "a"), grant("w2/1", 2, 4, "a")), 1, 0},
		{"two at once for a moment", the(grant("w1/1", 1, 2.000001, "a"), grant("w2/1", 2, 4, "a")), 1, 0},
		{"one of many keys in common", the(grant("w1/1", 1, 3, "a,b,c"), grant("w2/1", 2, 4, "c,d")), 1, 0},
		{"three at once", the(grant("w1/1", 1, 5, "a"), grant("w2/1", 2, 5, "a"), grant("w3/1", 3, 5, "a")), 3, 0},
		{"renewed while another has it", the(grant("w1/1", 1, 2, "a"), alive("w1/1", 1.5, 3), grant("w2/1", 2.5, 4, "a")), 1, 0},
		{"a long hold around a short one", the(grant("w1/1", 1, 9, "a"), grant("w2/1", 2, 3, "a"), grant("w3/1", 5, 6, "a")), 2, 0},
		{"the killed worker is still believed", the(grant("w1/1", 1, 9, "a"), fault("kill-worker", "w1", 2, 2.1),
			grant("w2/1", 3, 4, "a")), 1, 0},
		{"believed again after a release", the(grant("w1/1", 1, 9, "a"), claim("w1/1", 2, 0), claim("w1/1", 3, 4),
			grant("w2/1", 3.5, 5, "a")), 1, 0},

		{"Redis forgot in between", the(grant("w1/1", 1, 9, "a"), forget(2, 2.5), grant("w2/1", 3, 4, "a")), 0, 1},
		{"Redis forgot in between, and the first asked in vain for a shorter ttl then", the(grant("w1/1", 1, 9, "a"), forget(2, 2.5),
			grant("w2/1", 3, 6, "a"), claim("w1/1", 4, 0), claim("w1/1", 4.1, 5)), 0, 2},
		{"Redis forgot a hold of which its worker heard late", the(grant("w1/1", 4, 9, "a", begun(1)), forget(2, 2.5),
			grant("w2/1", 3, 6, "a", begun(2.6))), 0, 1},
		{"Redis forgot before both, one of which was heard of late", the(grant("w1/1", 4, 9, "a", begun(1)), forget(0.1, 0.5),
			grant("w2/1", 3, 6, "a", begun(2.6))), 1, 0},
		{"an earlier release of the first token may have come late", the(grant("w1/1", 0.1, 3, "a", custom("t")), claim("w1/1", 0.5, 0),
			done("Release", "w1/1", 0.9, "ok", begun(0.5)), grant("w1/2", 1, 9, "a", custom("t")),
			fault("strand-requests", "w1", 0.6, 2), grant("w2/1", 3, 4, "a")), 0, 1},
		{"a late release of the second token changes nothing", the(grant("w2/1", 0.1, 3, "a", custom("t")), claim("w2/1", 0.5, 0),
			done("Release", "w2/1", 0.9, "ok", begun(0.5)), grant("w1/1", 1, 9, "a"),
			fault("strand-requests", "w2", 0.6, 2), grant("w2/2", 3, 4, "a", custom("t"))), 1, 0},
		{"Redis forgot before the first one was refused", the(grant("w1/1", 4, 9, "a", queued(1, 2.7)), forget(2, 2.5),
			grant("w2/1", 3, 6, "a", begun(2.6))), 1, 0},
		{"Redis forgot after both, and the first asked in vain for a shorter ttl then", the(grant("w1/1", 1, 9, "a"),
			grant("w2/1", 3, 6, "a"), claim("w1/1", 4, 0), claim("w1/1", 4.1, 5), forget(4.2, 4.3)), 2, 0},
		{"Redis forgot in between, and has a guard", the(grant("w1/1", 1, 9, "a"), fault("flush-all", "", 2, 2, guarded),
			grant("w2/1", 3, 4, "a")), 1, 0},
		{"Redis forgot before both", the(forget(0.1, 0.5), grant("w1/1", 1, 9, "a"), grant("w2/1", 3, 4, "a")), 1, 0},
		{"Redis forgot after both", the(grant("w1/1", 1, 9, "a"), grant("w2/1", 3, 4, "a"), forget(5, 6)), 1, 0},
		{"a fault in between that forgets nothing", the(grant("w1/1", 1, 9, "a"), fault("restart-server", "", 2, 2.5),
			grant("w2/1", 3, 4, "a")), 1, 0},
		{"the first was deleted", the(grant("w1/1", 1, 9, "a"), fault("delete", "", 2, 2, about("w1/1")), grant("w2/1", 3, 4, "a")), 0, 1},
		{"the second was deleted", the(grant("w1/1", 1, 9, "a"), grant("w2/1", 3, 4, "a"), fault("delete", "", 3.5, 3.5, about("w2/1")),
			grant("w3/1", 3.6, 4, "a")), 2, 1},
		{"the first was granted while a server forgot", the(grant("w1/1", 2.1, 9, "a"), fault("forget", "", 2, 2.5, fresh),
			grant("w2/1", 3, 4, "a")), 0, 1},
		{"the second was granted while a server forgot", the(grant("w1/1", 1, 9, "a"), fault("forget", "", 2, 2.5, fresh),
			grant("w2/1", 2.2, 4, "a")), 1, 0},
	})
}

func TestExclusionOfHoldsThatOnlyTheirContextTells(t *testing.T) {
	do := func(op string, from, until float64) history.Event {
		return grant(op, from, until, "a", named("Do"), func(e *history.Event) { e.Token = "" })
	}
	seen := func(op string, when float64) history.Event {
		return with(history.Event{Kind: history.Alive, Op: op, At: at(when)})
	}
	tell(t, check.Exclusion, []story{
		{"one after the other", the(do("w1/1", 1, 0), seen("w1/1", 2), claim("w1/1", 2, 0), do("w2/1", 2.1, 3)), 0, 0},
		{"two at once", the(do("w1/1", 1, 0), seen("w1/1", 2), claim("w1/1", 2, 0), do("w2/1", 1.9, 3)), 1, 0},
		{"alive past the first Until", the(do("w1/1", 1, 1.5), seen("w1/1", 2), do("w2/1", 1.9, 3)), 1, 0},
	})
}

func TestExclusionOfALockThatComesBack(t *testing.T) {
	g := func(op string, from, until float64, edits ...edit) history.Event {
		return grant(op, from, until, "a", edits...)
	}
	lapsed := func(again float64) []history.Event { // and refreshed then
		return the(g("w1/1", 1, 2), claim("w1/1", again, again+1))
	}
	tell(t, check.Exclusion, []story{
		{"comes back", lapsed(3), 0, 0},
		{"comes back before another one", all(lapsed(3), the(g("w2/1", 4, 5))), 0, 0},
		{"comes back after one of another key", all(lapsed(5), the(grant("w2/1", 3, 4, "b"))), 0, 0},
		{"another handle of the same token", all(the(g("w1/1", 1, 2, custom("t")), claim("w1/1", 5, 6)), the(g("w2/1", 3, 4, custom("t")))), 0, 0},
		{"the answer for the other one was late", all(lapsed(5), the(g("w2/1", 4, 3.5, begun(0.5)))), 0, 0},
		{"the other one has a lower token", the(g("w1/1", 1, 2, fenced("f", 8)), claim("w1/1", 5, 6),
			g("w2/1", 4, 3.5, begun(0.5), fenced("f", 7))), 0, 0},
		{"refreshed in time", the(g("w1/1", 1, 3), claim("w1/1", 2, 5), g("w2/1", 5, 6)), 0, 0},

		{"comes back after another one", all(lapsed(5), the(g("w2/1", 3, 4))), 1, 0},
		{"comes back after two others", all(lapsed(7), the(g("w2/1", 3, 4), g("w3/1", 4, 5))), 1, 0},
		{"comes back after one of several keys", all(lapsed(5), the(grant("w2/1", 3, 4, "b,a"))), 1, 0},
		{"comes back after another one that waited", the(g("w1/1", 1, 2, fenced("f", 7)), claim("w1/1", 5, 6),
			g("w2/1", 3, 4, begun(0.5), fenced("f", 8))), 1, 0},
		{"valid although another one was granted, too late", the(g("w1/1", 1, 3), g("w2/1", 2, 1.9)), 1, 0},
		{"it was deleted, and comes back", all(lapsed(5), the(fault("delete", "", 1.5, 1.5, about("w1/1")), g("w2/1", 3, 4))), 0, 1},
		{"the other one was forgotten", all(lapsed(5), the(fault("restart-server", "", 3.5, 4, lossy), g("w2/1", 3, 9),
			claim("w2/1", 4, 0))), 0, 1},
	})
}

func TestFence(t *testing.T) {
	g := func(op string, from, until float64, token int64, edits ...edit) history.Event {
		return grant(op, from, until, "a", append([]edit{fenced("f", token)}, edits...)...)
	}
	tell(t, check.Fence, []story{
		{"rising", the(g("w1/1", 1, 2, 7), g("w2/1", 2, 3, 8), g("w3/1", 3, 4, 100)), 0, 0},
		{"other counters", the(g("w1/1", 1, 2, 7), grant("w2/1", 2, 3, "b", fenced("g", 3))), 0, 0},
		{"a call that began before", the(g("w1/1", 1, 2, 7), grant("w2/1", 1.5, 3, "b", fenced("f", 6), begun(0.5))), 0, 0},
		{"the same at one time, for another key on a quorum", the(g("w1/1", 1, 2, 7),
			grant("w2/1", 1.5, 3, "b", fenced("f", 7), begun(0.5), onQuorum)), 0, 0},

		{"the same at one time, for another key", the(g("w1/1", 1, 2, 7), grant("w2/1", 1.5, 3, "b", fenced("f", 7), begun(0.5))), 1, 0},
		{"the same at one time on a quorum", the(g("w1/1", 1, 2, 7), g("w2/1", 2, 3, 7, begun(0.5), onQuorum)), 1, 0},
		{"the same later, for another key on a quorum", the(g("w1/1", 1, 2, 7), grant("w2/1", 1.5, 3, "b", fenced("f", 7), onQuorum)), 1, 0},
		{"falling", the(g("w1/1", 1, 2, 7), g("w2/1", 2, 3, 6)), 1, 0},
		{"falling after others", the(g("w1/1", 1, 2, 9), g("w2/1", 2, 3, 10), g("w3/1", 3, 4, 5)), 1, 0},
		{"the same twice", the(g("w1/1", 1, 2, 7), g("w2/1", 2, 3, 7)), 1, 0},
		{"none at all", the(g("w1/1", 1, 2, 0)), 1, 0},
		{"falling, though the later call began first", the(g("w1/1", 1, 2, 7), g("w2/1", 2.5, 3, 6, begun(0.5))), 1, 0},
		{"falling, though the later call began first, and another was granted in between", the(g("w1/1", 1, 2, 7),
			grant("w3/1", 1.5, 2, "b", fenced("f", 8)), g("w2/1", 2.5, 3, 6, begun(0.5))), 1, 0},
		{"falling after Redis forgot the counter", the(g("w1/1", 1, 2, 7), fault("restart-server", "", 1.2, 1.9, lossy),
			g("w2/1", 2, 3, 6)), 1, 0},
	})
}

func TestStore(t *testing.T) {
	g := func(op string, from, until float64, token int64) history.Event {
		return grant(op, from, until, "a", fenced("f", token))
	}
	tell(t, check.Store, []story{
		{"rising", the(g("w1/1", 1, 2, 7), write("w1/1", "f", 1.5, 7, "taken"), write("w1/1", "f", 1.6, 7, "taken"),
			g("w2/1", 2, 3, 8), write("w2/1", "f", 2.5, 8, "taken")), 0, 0},
		{"a late write is refused", the(g("w1/1", 1, 2, 7), g("w2/1", 2, 3, 8), write("w2/1", "f", 2.5, 8, "taken"),
			write("w1/1", "f", 2.6, 7, "refused")), 0, 0},
		{"a late write before anybody else has written", the(g("w1/1", 1, 2, 7), g("w2/1", 2, 3, 8),
			write("w1/1", "f", 2.6, 7, "taken")), 0, 0},

		{"a late write is taken", the(g("w1/1", 1, 2, 7), g("w2/1", 2, 3, 8), write("w2/1", "f", 2.5, 8, "taken"),
			write("w1/1", "f", 2.6, 7, "taken")), 1, 0},
		{"a valid holder is refused", the(grant("w1/1", 1, 2, "b", fenced("f", 9)), write("w1/1", "f", 1.5, 9, "taken"),
			grant("w2/1", 2, 3, "a", fenced("f", 8), begun(0.5)), write("w2/1", "f", 2.5, 8, "refused")), 1, 0},
		{"the store refuses the highest", the(g("w1/1", 1, 2, 7), write("w1/1", "f", 1.5, 7, "taken"),
			write("w1/1", "f", 1.6, 7, "refused")), 1, 0},
	})
}

func TestKept(t *testing.T) {
	tell(t, check.Kept, []story{
		{"alive until the end", the(grant("w1/1", 1, 2, "a"), alive("w1/1", 1.5, 2), alive("w1/1", 1.999, 2)), 0, 0},
		{"renewed", the(grant("w1/1", 1, 2, "a"), alive("w1/1", 1.5, 3), alive("w1/1", 2.5, 3)), 0, 0},

		{"alive afterwards", the(grant("w1/1", 1, 2, "a"), alive("w1/1", 2.5, 2)), 1, 0},
		{"alive twice, a moment afterwards", the(grant("w1/1", 1, 2, "a"), alive("w1/1", 2.000001, 2), alive("w1/1", 2.1, 2)), 2, 0},
	})
}

func TestLease(t *testing.T) {
	ttl := func(when, s float64) history.Event { return done("TTL", "w1/1", when, "ok", left(s)) }
	tell(t, check.Lease, []story{
		{"Redis keeps it longer", the(grant("w1/1", 1, 3, "a"), ttl(2, 1.02)), 0, 0},
		{"to the millisecond", the(grant("w1/1", 1, 3, "a"), ttl(2, 0.999)), 0, 0},
		{"after a release nobody counts on it", the(grant("w1/1", 1, 3, "a"), claim("w1/1", 1.5, 0),
			sample(2, "a w1/1 0.5")), 0, 0},
		{"as a sample sees it", the(grant("w1/1", 1, 3, "a"), sample(2, "a w1/1 1.02")), 0, 0},
		{"to the millisecond, as a sample sees it", the(grant("w1/1", 1, 3, "a"), sample(2, "a w1/1 0.9985")), 0, 0},
		{"in several slots", the(grant("w1/1", 1, 3, "a,b"), spread(sample(2, "a w1/1 1.02", "b w1/1 1.02"))), 0, 0},

		{"Redis keeps it shorter", the(grant("w1/1", 1, 3, "a"), ttl(2, 0.9)), 1, 0},
		{"shorter after a refresh", the(grant("w1/1", 1, 3, "a"), claim("w1/1", 1.5, 4), ttl(2, 1.5)), 1, 0},
		{"as a sample sees it, shorter", the(grant("w1/1", 1, 3, "a"), sample(2, "a w1/1 0.9")), 1, 0},
		{"less than a millisecond shorter, as an exact sample sees it", the(grant("w1/1", 1, 3, "a"),
			with(sample(2, "a w1/1 0.9985"), exact)), 1, 0},
		{"one of two keys shorter", the(grant("w1/1", 1, 3, "a,b"), sample(2, "a w1/1 1.02", "b w1/1 0.5")), 1, 0},
		{"a clock was set forward", the(grant("w1/1", 1, 3, "a"), fault("clock-forward", "", 1.5, 1.5, lossy), ttl(2, 0.5)), 0, 1},
	})
}

// quorum makes a sample one of five servers, of which three must hold a key.
// The first server that has a key is server 1, the second one server 2, and so on.
func quorum(e history.Event) history.Event {
	e.Need = 3
	servers := map[string]int{}
	for i, h := range e.Held {
		servers[h.Key]++
		e.Held[i].Server = servers[h.Key]
	}
	return e
}

// spread puts each key of a sample on a server of its own, where no quorum is.
func spread(e history.Event) history.Event {
	for i := range e.Held {
		e.Held[i].Server = i + 1
	}
	return e
}

func TestLeaseOnAQuorum(t *testing.T) {
	tell(t, check.Lease, []story{
		{"three keep it longer", the(grant("w1/1", 1, 3, "a"),
			quorum(sample(2, "a w1/1 1.1", "a w1/1 1.02", "a w1/1 1.02", "a w1/1 0.2"))), 0, 0},
		{"only two do", the(grant("w1/1", 1, 3, "a"),
			quorum(sample(2, "a w1/1 1.1", "a w1/1 1.02", "a w1/1 0.9", "a w1/1 0.2"))), 1, 0},
		{"none does", the(grant("w1/1", 1, 3, "a"),
			quorum(sample(2, "a w1/1 0.1", "a w1/1 0.1", "a w1/1 0.1", "a w1/1 0.1", "a w1/1 0.1"))), 1, 0},
		{"three keep each of two keys, and two keep both", the(grant("w1/1", 1, 3, "a,b"),
			quorum(sample(2, "a w1/1 2", "a w1/1 2", "a w1/1 2", "a w1/1 0.5", "b w1/1 0.5", "b w1/1 2", "b w1/1 2", "b w1/1 2"))), 1, 0},
	})
	tell(t, check.Loss, []story{
		{"three hold it", the(grant("w1/1", 1, 3, "a"), quorum(sample(2, "a w1/1 2", "a w1/1 2", "a w1/1 2"))), 0, 0},
		{"two hold it", the(grant("w1/1", 1, 3, "a"), quorum(sample(2, "a w1/1 2", "a w1/1 2"))), 1, 0},
		{"another has two of them", the(grant("w1/1", 1, 3, "a"),
			quorum(sample(2, "a w1/1 2", "a w1/1 2", "a w1/9 2", "a w1/9 2"))), 1, 0},
		{"three hold each of two keys, and two hold both", the(grant("w1/1", 1, 3, "a,b"),
			quorum(sample(2, "a w1/1 2", "a w1/1 2", "a w1/1 2", "b w1/9 2", "b w1/1 2", "b w1/1 2", "b w1/1 2"))), 1, 0},
	})
}

func TestLoss(t *testing.T) {
	release := func(when float64, outcome string, edits ...edit) history.Event {
		return done("Release", "w1/1", when, outcome, edits...)
	}
	tell(t, check.Loss, []story{
		{"released", the(grant("w1/1", 1, 3, "a"), claim("w1/1", 2, 0), release(2.1, "ok")), 0, 0},
		{"lost after Until", the(grant("w1/1", 1, 3, "a"), release(3.1, "lost", lost)), 0, 0},
		{"another handle released", the(grant("w1/1", 1, 3, "a"), release(2.1, "lost")), 0, 0},
		{"still there", the(grant("w1/1", 1, 3, "a"), sample(2, "a w1/1 5")), 0, 0},
		{"there, with a value that does not name its owner", the(grant("w1/1", 1, 3, "a"),
			with(sample(2), func(e *history.Event) { e.Held = []history.Held{{Key: "a", TTL: 5 * time.Second}} })), 0, 0},
		{"gone after the release", the(grant("w1/1", 1, 3, "a"), claim("w1/1", 1.5, 0), sample(2)), 0, 0},
		{"given up while the sample was taken", the(grant("w1/1", 1, 3, "a"), claim("w1/1", 2.0005, 0), sample(2)), 0, 0},

		{"lost before Until", the(grant("w1/1", 1, 3, "a"), claim("w1/1", 2, 0), release(2.1, "lost", lost)), 1, 0},
		{"lost while it is kept", the(grant("w1/1", 1, 3, "a"), alive("w1/1", 1.5, 4),
			done("KeepAlive", "w1/1", 3.5, "lost", lost)), 1, 0},
		{"gone while it is relied on", the(grant("w1/1", 1, 3, "a"), sample(2)), 1, 0},
		{"one of two keys gone", the(grant("w1/1", 1, 3, "a,b"), sample(2, "a w1/1 5")), 1, 0},
		{"another's while it is relied on", the(grant("w1/1", 1, 3, "a"), sample(2, "a w2/1 5")), 1, 0},
		{"Redis has a guard and forgot it, as TTL says", the(grant("w1/1", 1, 3, "a"), fault("flush-all", "", 1.2, 1.4, guarded),
			done("TTL", "w1/1", 2, "ok", lost)), 0, 1},
		{"Redis has a guard and forgot it, as Refresh says", the(grant("w1/1", 1, 3, "a"),
			fault("flush-all", "", 1.2, 1.4, guarded), done("Refresh", "w1/1", 2, "lost", lost)), 1, 0},
		{"Redis forgot it", the(grant("w1/1", 1, 3, "a"), fault("restart-server", "", 1.2, 1.4, lossy),
			release(2.1, "lost", lost)), 0, 1},
	})
	// While a server with a guard goes back to what it had, w1 is granted a and b at 2 s, and hears of a loss at 2.5 s.
	backTo := func(from, to float64, held ...string) []history.Event {
		back := func(e *history.Event) { e.Start, e.Held = at(to-0.1), sample(to, held...).Held }
		return the(grant("w1/1", 2, 4, "a,b"), fault("restart-old", "", from, to, guarded, back), claim("w1/1", 2.5, 0),
			release(2.5, "lost", lost))
	}
	// backToOwn is backTo with a key of that token, while the hold has token t.
	backToOwn := func(token string) []history.Event {
		events := backTo(1.5, 2.8, "a w1/1 4")
		for i := range events {
			if e := &events[i]; e.Kind == history.Grant {
				e.Token = "t"
			}
			for j := range events[i].Held {
				events[i].Held[j].Token = token
			}
		}
		return events
	}
	tell(t, check.Loss, []story{
		{"the server has the key of another again", backTo(1.5, 2.8, "b w2/1 4"), 0, 1},
		{"the server has the key of somebody again", backTo(1.5, 2.8, "b - 4"), 0, 1},
		{"a server went back during the obtain", backTo(1.5, 2.095, "b w2/1 4"), 0, 1},
		{"the server has nothing", backTo(1.5, 2.8), 1, 0},
		{"the server has other keys", backTo(1.5, 2.8, "c w2/1 4"), 1, 0},
		{"the server has its own key", backTo(1.5, 2.8, "a w1/1 4"), 1, 0},
		{"the server has the key of an earlier round of the obtain", backToOwn("u"), 0, 1},
		{"the server has its own key, by its token", backToOwn("t"), 1, 0},
		{"another handle of its own", all(backTo(1.5, 2.8, "a w1/2 4"), the(grant("w1/2", 0.5, 1, "a", custom("w1/1")))), 1, 0},
		{"a server had gone back before the obtain", backTo(1.5, 2.05, "a w2/1 4"), 1, 0},
		{"a server went back after that", backTo(2.6, 2.8, "a w2/1 4"), 1, 0},
	})
	// w1 releases a lock of token t at 0.9 s, and hears at 2.1 s that another one is lost, which it obtained at 1 s.
	again := func(fault history.Event, edits ...edit) []history.Event {
		return the(grant("w1/1", 0.1, 3, "a", custom("t")), claim("w1/1", 0.5, 0), done("Release", "w1/1", 0.9, "ok", begun(0.5)),
			grant("w1/2", 1, 3, "a", edits...), fault, claim("w1/2", 2, 0), done("Release", "w1/2", 2.1, "lost", lost))
	}
	tell(t, check.Loss, []story{
		{"its release may have come late", again(fault("strand-requests", "w1", 0.6, 1.5), custom("t")), 0, 1},
		{"its release came before the obtain", again(fault("strand-requests", "w1", 0.6, 0.9), custom("t")), 1, 0},
		{"a request of another worker came late", again(fault("strand-requests", "w2", 0.6, 1.5), custom("t")), 1, 0},
		{"another request came late", again(fault("strand-requests", "w1", 0.95, 1.5), custom("t")), 1, 0},
		{"no request came late", again(fault("cut-replies", "w1", 0.6, 1.5), custom("t")), 1, 0},
		{"it was a release of another token", again(fault("strand-requests", "w1", 0.6, 1.5), custom("u")), 1, 0},
	})
}

func TestLine(t *testing.T) {
	beats := living(20, "w1", "w2")
	// w1 waits for a from 10.1 s until its grant at 12 s.
	waiter := grant("w1/1", 12, 14, "a", queued(10, 10.1))
	gaveUp := done("Obtain", "w1/1", 12.5, "timeout", queued(10, 10.1), limit(12), wants("a,b"))
	overtakes := grant("w2/1", 11, 11.5, "a", begun(10.9))
	tell(t, check.Line, []story{
		{"in order", all(beats, the(waiter, grant("w2/1", 15, 16, "a", begun(11)))), 0, 0},
		{"one that came before", all(beats, the(waiter, grant("w2/1", 11, 11.5, "a", begun(9.9)))), 0, 0},
		{"one that wants other keys", all(beats, the(waiter, grant("w2/1", 11, 11.5, "b", begun(10.9)))), 0, 0},
		{"one that has the key already", all(beats, the(waiter, grant("w2/1", 11, 11.5, "a", begun(10.9), custom("t")))), 0, 0},
		{"a second handle", all(beats, the(waiter, grant("w2/1", 11, 11.5, "a", begun(10.9), named("Attach")))), 0, 0},
		{"the waiter stood still", all(without(beats, "w1", 10.2, 11.1), the(waiter, overtakes)), 0, 0},
		{"a fault hit the waiter", all(beats, the(waiter, overtakes, fault("stop-worker", "w1", 9, 9.2))), 0, 0},
		{"a fault hit the server", all(beats, the(waiter, overtakes, fault("pause-server", "", 9, 9.2))), 0, 0},
		{"the waiter had given up", all(beats, the(gaveUp, grant("w2/1", 12.2, 12.3, "a", begun(12.1)))), 0, 0},

		{"overtaken", all(beats, the(waiter, overtakes)), 1, 0},
		{"overtaken for one of its keys", all(beats, the(gaveUp, overtakes)), 1, 0},
		{"overtaken right after Redis forgot the line", all(beats, the(waiter, overtakes, fault("flush-all", "", 10.5, 10.6, guarded))), 0, 0},
		{"overtaken when the guard had opened again", all(beats, the(grant("w1/1", 14, 16, "a", queued(10, 10.1)),
			grant("w2/1", 13, 13.5, "a", begun(12.9)), fault("flush-all", "", 10.5, 10.6, guarded))), 1, 0},
		{"overtaken twice", all(beats, the(waiter, overtakes, grant("w2/2", 11.8, 11.9, "a", begun(11.7)))), 2, 0},
		{"overtaken while another worker is stopped", all(beats, the(waiter, overtakes, fault("stop-worker", "w3", 9, 13))), 1, 0},
		{"scripts were flushed, which nobody must notice", all(beats, the(waiter, overtakes, fault("flush-scripts", "", 11, 11))), 1, 0},
	})
}

func TestServed(t *testing.T) {
	beats := living(40, "w1", "w2")
	waiter := done("Obtain", "w1/1", 30, "timeout", queued(10, 10.1), limit(30), wants("a,b"))
	samples := func(from, to float64, held ...string) (all []history.Event) {
		for s := from; s < to; s += 0.2 {
			all = append(all, sample(s, held...))
		}
		return all
	}
	tell(t, check.Served, []story{
		{"somebody has one of the keys", all(beats, the(waiter), samples(9, 30, "b w2/1 5")), 0, 0},
		{"free for some seconds", all(beats, the(waiter), samples(9, 20, "b w2/1 5"), samples(20, 24), samples(24, 30, "b w2/1 5")), 0, 0},
		{"free, but the waiter stood still", all(without(beats, "w1", 20, 22), the(waiter), samples(9, 17, "b w2/1 5"),
			samples(17, 23), samples(23, 30, "a w2/1 3")), 0, 0},
		{"free, but not long after a fault", all(beats, the(waiter, fault("pause-server", "", 15, 19)), samples(9, 17, "b w2/1 5"),
			samples(17, 24), samples(24, 30, "a w2/1 3")), 0, 0},
		{"free, but another waits ahead for one of them", all(beats, the(waiter,
			done("Obtain", "w2/1", 30, "timeout", queued(9.9, 10), limit(30), wants("b,c"))), samples(9, 30, "c w3/1 5")), 0, 0},
		{"free, but one that no refusal is known of may wait ahead", all(beats, the(waiter,
			grant("w2/1", 30, 31, "b,c", queued(9.9, 0))), samples(9, 30, "c w3/1 5")), 0, 0},

		{"free, but workers died, one after the other, whose waiters may have been ahead", all(beats, the(waiter,
			fault("kill-worker", "w3", 16.5, 16.6), fault("kill-worker", "w2", 20, 20.1)), samples(9, 17, "b w2/1 5"),
			samples(17, 24), samples(24, 30, "a w2/1 3")), 0, 0},

		{"free for long after a worker died", all(beats, the(waiter, fault("kill-worker", "w3", 12, 12.1)), samples(9, 30, "c w2/1 5")), 1, 0},
		{"free, and another waits behind", all(beats, the(waiter,
			done("Obtain", "w2/1", 30, "timeout", queued(10, 10.2), limit(30), wants("b,c"))), samples(9, 30, "c w3/1 5")), 1, 0},
		{"free, and one that no refusal is known of came later", all(beats, the(waiter,
			grant("w2/1", 30, 31, "b,c", queued(10.2, 0))), samples(9, 30, "c w3/1 5")), 1, 0},
		{"free all the time", all(beats, the(waiter), samples(9, 30, "c w2/1 5")), 1, 0},
		{"free at the end", all(beats, the(waiter), samples(9, 20, "a w2/1 5"), samples(20, 30)), 1, 0},
	})
}

func TestPrompt(t *testing.T) {
	beats := living(20, "w1")
	call := func(returned float64, edits ...edit) history.Event {
		return done("Obtain", "w1/1", returned, "timeout", append([]edit{begun(1), limit(2)}, edits...)...)
	}
	tell(t, check.Prompt, []story{
		{"at once", all(beats, the(call(2.01))), 0, 0},
		{"before the end", all(beats, the(call(1.5))), 0, 0},
		{"no end", all(beats, the(call(9, limit(0)))), 0, 0},
		{"late, since the process stood still", all(without(beats, "w1", 2.1, 5), the(call(5))), 0, 0},
		{"a release whose ctx had ended", all(beats, the(call(2.3, named("Release"), begun(1.2), limit(1)))), 0, 0},
		{"a release whose ctx ended before it looked", all(beats, the(call(2.1, named("Release"), begun(1), limit(1.0001)))), 0, 0},

		{"late", all(beats, the(call(3))), 1, 0},
		{"a call whose ctx had ended", all(beats, the(call(2.3, begun(1.2), limit(1)))), 1, 0},
		{"a release whose ctx ended soon after it began", all(beats, the(call(2.1, named("Release"), begun(1), limit(1.02)))), 1, 0},
		{"a release that is late even so", all(beats, the(call(4, named("Release"), begun(1.2), limit(1)))), 1, 0},
		{"a worker that hung", all(beats, the(done("Worker", "w1", 9, "hung"))), 1, 0},
		{"a worker that crashed", all(beats, the(done("Worker", "w1", 9, "crashed"))), 1, 0},
	})
}

func TestErrors(t *testing.T) {
	tell(t, check.Errors, []story{
		{"refused", the(done("Obtain", "w1/1", 9, "refused")), 0, 0},
		{"after a fault", the(fault("pause-server", "", 5, 6), done("Obtain", "w1/1", 9, "network")), 0, 0},
		{"after the machine stood still", the(sample(8), sample(8.7), done("Obtain", "w1/1", 9, "network")), 0, 0},
		{"after the worker stood still", all(without(living(20, "w1"), "w1", 8.8, 9), the(done("Obtain", "w1/1", 9, "network", begun(8.7)))), 0, 0},
		{"after a fault of its own", the(fault("cut-replies", "w1", 5, 6), done("Obtain", "w1.2/1", 9, "network")), 0, 0},

		{"without a fault", the(done("Obtain", "w1/1", 9, "redis")), 1, 0},
		{"while the worker lived", all(living(20, "w1"), the(done("Obtain", "w1/1", 9, "network", begun(8.7)))), 1, 0},
		{"while Redis was sampled all the time", the(sample(8), sample(8.3), sample(8.6), done("Obtain", "w1/1", 9, "network")), 1, 0},
		{"after the fault of another", the(fault("cut-replies", "w2", 5, 6), done("Obtain", "w1/1", 9, "network")), 1, 0},
		{"after scripts were flushed", the(fault("flush-scripts", "", 8, 8), done("Obtain", "w1/1", 9, "redis")), 1, 0},
		{"of an unknown kind", the(done("Do", "w1/1", 9, "unexpected")), 1, 0},
		{"of which nobody knows what it has freed", the(done("Release", "w1/1", 9, "unknown")), 1, 0},
	})
}

func TestLeftover(t *testing.T) {
	beats := living(30, "w1", "w2")
	abandoned := done("Obtain", "w1/1", 5, "timeout")
	waited := done("Obtain", "w1/1", 5, "timeout", func(e *history.Event) { e.Queue, e.Refused, e.Keys = true, at(4), []string{"a"} })
	custom := done("Obtain", "w1/1", 5, "timeout", func(e *history.Event) { e.Start, e.Options = at(4), []string{"token"} })
	leave := func(when float64) history.Event {
		return done("Leave", "w1/1", when, "ok", func(e *history.Event) { e.Start = at(4) })
	}
	last := func(outcome string) history.Event {
		return with(history.Event{Kind: history.Last, At: at(30), Name: "ObtainMulti", Keys: []string{"a"}, Outcome: outcome})
	}
	tell(t, check.Leftover, []story{
		{"gone soon", all(beats, the(abandoned, sample(6, "a w1/1 9"), sample(15))), 0, 0},
		{"another's", all(beats, the(abandoned, sample(15, "a w2/1 9"))), 0, 0},
		{"the worker was killed", all(living(6, "w1"), the(abandoned, sample(15, "a w1/1 9"))), 0, 0},
		{"the server was down", all(beats, the(abandoned, fault("restart-server", "", 6, 12), sample(15, "a w1/1 9"))), 0, 0},
		{"the release failed", all(beats, the(grant("w1/1", 4, 5, "a"), fault("cut-replies", "w1", 4, 5),
			done("Release", "w1/1", 5, "network"), sample(15, "a w1/1 9"))), 0, 0},
		{"an obtain with a token of the caller was not answered", all(beats, the(fault("cut-replies", "w1", 4, 5),
			done("Obtain", "w1/1", 5, "network", func(e *history.Event) { e.Options = []string{"token"} }), sample(15, "a w1/1 9"))), 0, 0},
		{"a try of such an obtain was not answered", all(beats, the(fault("delay-requests", "w1", 3, 4.5), custom,
			sample(15, "a w1/1 9"))), 0, 0},
		{"a try of such an obtain was sent twice, and refused", all(beats, the(fault("strand-requests", "w1", 3, 4.5), with(custom, func(e *history.Event) {
			e.Outcome = "refused"
		}), sample(15, "a w1/1 9"))), 0, 0},
		{"it left while a fault was at work", all(beats, the(grant("w1/1", 4, 14, "a"), claim("w1/1", 4.5, 0),
			done("Release", "w1/1", 5, "ok"), fault("delay-replies", "w1", 4.9, 6), leave(5.5), sample(10, "a w1/1 4"))), 0, 0},
		{"nothing left", the(with(history.Event{Kind: history.Final, At: at(30)}), last("granted")), 0, 0},
		{"a failover forgot that it had left its lines", all(beats, the(waited, fault("failover", "", 4, 5.5, lossy),
			sample(15, "a w1/1 9"))), 0, 1},

		{"a failover after it had left its lines", all(beats, the(waited, fault("failover", "", 7, 8, lossy),
			sample(15, "a w1/1 9"))), 1, 0},
		{"a failover forgot it, but it had not waited", all(beats, the(abandoned, fault("failover", "", 4, 5.5, lossy),
			sample(15, "a w1/1 9"))), 1, 0},
		{"an obtain was not answered", all(beats, the(fault("cut-replies", "w1", 4, 5), done("Obtain", "w1/1", 5, "network"),
			sample(15, "a w1/1 9"))), 1, 0},
		{"an obtain with a token of the caller was abandoned in peace", all(beats, the(fault("delay-requests", "w2", 3, 4.5),
			custom, sample(15, "a w1/1 9"))), 1, 0},
		{"an abandoned obtain holds its key", all(beats, the(abandoned, sample(15, "a w1/1 9"))), 1, 0},
		{"a released lock holds its key", all(beats, the(grant("w1/1", 4, 5, "a"), claim("w1/1", 4.5, 0),
			done("Release", "w1/1", 5, "ok"), sample(15, "a w1/1 9"))), 1, 0},
		{"it left, and its release had not arrived", all(beats, the(grant("w1/1", 4, 14, "a"), claim("w1/1", 4.5, 0),
			done("Release", "w1/1", 5, "ok"), leave(5.1), sample(10, "a w1/1 4"))), 1, 0},
		{"no expiry", all(beats, the(sample(5, "a w1/1 -1"))), 1, 0},
		{"a key is left", the(with(history.Event{Kind: history.Final, At: at(30), Held: []history.Held{{Key: "a", TTL: 1}}})), 1, 0},
		{"a key cannot be locked", the(last("refused")), 1, 0},
		{"nobody could look", the(with(history.Event{Kind: history.Final, At: at(30), Name: "look", Outcome: "no-answer"})), 1, 0},
	})
}

func TestRepair(t *testing.T) {
	beats := living(20, "w1", "w2")
	kept := the(grant("w1/1", 1, 2, "a", func(e *history.Event) { e.TTL = time.Second }))
	for s := 1.1; s < 12; s += 0.1 {
		kept = append(kept, alive("w1/1", s, s+0.9))
	}
	on := func(n int) history.Event {
		return quorum(sample(10.05, slices.Repeat([]string{"a w1/1 1"}, n)...))
	}
	tell(t, check.Repair, []story{
		{"all servers have it", all(beats, kept, the(on(5))), 0, 0},
		{"four have it, and a server has just forgotten", all(beats, kept, the(fault("forget-server", "", 8, 9), on(4))), 0, 0},
		{"four have it, and a fault has just hit its worker", all(beats, kept, the(fault("cut-replies", "w1", 8, 9), on(4))), 0, 0},
		{"four have it, and another has a key at the fifth", all(beats, kept, the(quorum(sample(10.05,
			"a w1/1 1", "a w1/1 1", "a w1/1 1", "a w1/1 1", "a w2/1 1")))), 0, 0},
		{"four have it, and another had a key at the fifth a moment ago", all(beats, kept, the(quorum(sample(9.85,
			"a w1/1 1", "a w1/1 1", "a w1/1 1", "a w1/1 1", "a w2/1 1")), on(4))), 0, 0},
		{"four have it, which began long before", all(beats, the(grant("w1/1", 9, 10, "a", begun(1), func(e *history.Event) {
			e.TTL = time.Second
		})), kept[1:], the(on(4))), 0, 0},
		{"four have it, and a guard is closed", all(beats, kept, the(fault("flush-all", "", 5, 6, guarded), on(4))), 0, 0},
		{"four have it, and it is not kept", all(beats, the(grant("w1/1", 1, 11, "a"), on(4))), 0, 0},

		{"four have it", all(beats, kept, the(on(4))), 1, 0},
		{"four have it, long after a server forgot", all(beats, kept, the(fault("forget-server", "", 5, 6), on(4))), 1, 0},
		{"four have it, and a guard has been open for long", all(beats, kept, the(fault("flush-all", "", 3, 4, guarded), on(4))), 1, 0},
		{"three have it, and a fault has hit another worker", all(beats, kept, the(fault("cut-replies", "w2", 8, 9), on(3))), 1, 0},
	})
}

func TestExclusionOnAQuorumOfWhichOneForgets(t *testing.T) {
	forget := func(keys ...string) history.Event {
		return fault("forget-server", "", 2, 2.5, func(e *history.Event) { e.Keys = keys })
	}
	both := the(grant("w1/1", 1, 9, "a,b"), grant("w2/1", 3, 4, "b,c"))
	tell(t, check.Exclusion, []story{
		{"a majority held it all the time", all(both, the(forget())), 1, 0},
		{"it was another lock that a bare majority held", all(both, the(forget("x"))), 1, 0},
		{"a bare majority held it", all(both, the(forget("x", "b"))), 0, 1},
	})
}

func TestChecksCountWhatTheyLookAt(t *testing.T) {
	r := check.Run(all(living(20, "w1", "w2"), the(
		grant("w1/1", 12, 14, "a", queued(10, 10.1), fenced("f", 1)), grant("w2/1", 11, 11.5, "a", begun(9.9)),
		write("w1/1", "f", 13, 1, "taken"), alive("w1/1", 13, 15), done("TTL", "w1/1", 13.5, "ok", left(3)),
		done("Release", "w1/1", 14, "ok", limit(13.99)), sample(18, "a w1/1 1"), reader("w1/3", 15, 16), reader("w1/4", 15, 16),
		done("Obtain", "w2/2", 19.9, "timeout", queued(10, 10.1), limit(19.9), wants("b")),
		// The last events are two callers who wait for each other.
		grant("w1/5", 16, 19, "c"), done("Do", "w1/6", 19, "deadlock", queued(17, 17.1), wants("d"), under("w1/5")),
		grant("w2/3", 16, 19.1, "d"), grant("w2/4", 19.1, 19.5, "c", queued(16.5, 17), under("w2/3")),
		history.Event{Kind: history.Final, At: at(20), Worker: "torture"},
	)))
	for _, name := range check.All {
		if r.Checked[name] == 0 && name != check.Repair { // which needs a quorum
			t.Errorf("%s has looked at nothing", name)
		}
	}
}
