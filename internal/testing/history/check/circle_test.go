package check_test

import (
	"testing"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
)

// under names the holds that the caller of a call has meanwhile.
func under(ops ...string) edit { return func(e *history.Event) { e.Under = ops } }

func inLineSince(s float64) edit { return queued(s-0.1, s) }

// inside is a call inside the hold 1 of its worker. It waits for keys from from until until, and ends without them.
func inside(worker, keys string, from, until float64, edits ...edit) history.Event {
	return done("Do", worker+"/2", until, "timeout", append([]edit{inLineSince(from), wants(keys), under(worker + "/1")}, edits...)...)
}

// holder is the hold 1 of a worker.
func holder(worker, keys string, edits ...edit) history.Event {
	return grant(worker+"/1", 5, 60, keys, edits...)
}

// over is the end of a history: nobody waits any more.
func over(s float64) history.Event {
	return history.Event{Kind: history.Final, At: at(s), Worker: "torture"}
}

func TestCircle(t *testing.T) {
	beats := living(60, "w1", "w2", "w3")
	two := the(holder("w1", "a"), holder("w2", "b"))
	three := all(two, the(holder("w3", "c")))
	first := inside("w1", "b", 8, 40)
	readers := the(holder("w1", "a", holders(0)), holder("w2", "a,b", holders(0, 1)))
	tell(t, check.Circle, []story{
		{"two for 9 s", all(beats, two, the(first, inside("w2", "a", 10, 19))), 0, 0},
		{"three for 9 s", all(beats, three, the(first, inside("w2", "c", 9, 50), inside("w3", "a", 12, 21))), 0, 0},
		{"two of three give up in time", all(beats, three, the(inside("w1", "b,c", 8, 40), inside("w2", "a", 10, 19), inside("w3", "a", 10, 15))), 0, 0},
		{"a chain", all(beats, three, the(first, inside("w2", "c", 9, 50))), 0, 0},
		{"a holder goes on", all(beats, two, the(first, inside("w2", "a", 10, 15), grant("w2/3", 45, 46, "d", begun(16)))), 0, 0},
		{"one is granted what it waits for", all(beats, two, the(first, claim("w1/1", 18.9, 0), grant("w2/2", 19, 50, "a", inLineSince(10), under("w2/1")))), 0, 0},
		{"a granted Do that ends with an error", all(beats, two, the(first, claim("w1/1", 18.9, 0), grant("w2/2", 19, 50, "a",
			inLineSince(10), under("w2/1"), named("Do")), inside("w2", "a", 10, 40))), 0, 0},
		{"one holds nothing", all(beats, two, the(first, done("Do", "w2/2", 30, "timeout", inLineSince(10), wants("a")))), 0, 0},
		{"one does not wait in line", all(beats, two, the(first, inside("w2", "a", 10, 30, func(e *history.Event) { e.Queue = false }))), 0, 0},
		{"both share one of the keys", all(beats, readers, the(inside("w1", "b", 8, 40), inside("w2", "a", 10, 30, holders(0)))), 0, 0},
		{"one of the permits is another's", all(beats, the(holder("w1", "a", holders(2)), holder("w2", "b"), holder("w3", "a", holders(2))),
			the(first, inside("w2", "a", 10, 30, holders(2)))), 0, 0},
		{"a fault in the middle of it", all(beats, two, the(first, inside("w2", "a", 10, 25), fault("cut-replies", "w1", 15, 16))), 0, 0},
		{"a guard was closed in the middle of it", all(beats, two, the(first, inside("w2", "a", 10, 26), fault("flush-all", "", 15, 15, guarded))), 0, 0},
		{"a process stood still in the middle of it", all(without(beats, "w2", 15, 17), two, the(first, inside("w2", "a", 10, 26))), 0, 0},
		{"the machine is very slow in the middle of it", all(beats, two, the(first, inside("w2", "a", 10, 22), fault("slow-server", "", 15, 17))), 0, 0},

		{"two for 11 s", all(beats, two, the(first, inside("w2", "a", 10, 21))), 1, 0},
		{"three for 11 s", all(beats, three, the(first, inside("w2", "c", 9, 50), inside("w3", "a", 12, 23))), 1, 0},
		{"one of three circles goes on", all(beats, three, the(inside("w1", "b,c", 8, 40), inside("w2", "a", 10, 21), inside("w3", "a", 10, 15))), 1, 0},
		{"granted after 11 s", all(beats, two, the(first, claim("w1/1", 20.9, 0), grant("w2/2", 21, 50, "a", inLineSince(10), under("w2/1")))), 1, 0},
		{"one waits for what its own caller holds", all(beats, two, the(inside("w1", "a", 10, 21))), 1, 0},
		{"its caller holds two locks", all(beats, two, the(grant("w1/0", 4, 60, "x"), inside("w1", "b", 8, 40, under("w1/0", "w1/1")),
			inside("w2", "x", 10, 21))), 1, 0},
		{"another one waits for them as well", all(beats, three, the(first, inside("w2", "a", 10, 22), inside("w3", "a", 10.5, 40))), 1, 0},
		{"one would share what another holds alone", all(beats, two, the(first, inside("w2", "a", 10, 21, holders(0)))), 1, 0},
		{"one wants a shared key alone", all(beats, readers, the(inside("w1", "b", 8, 40), inside("w2", "a", 10, 21))), 1, 0},
		{"all permits are theirs", all(beats, the(holder("w1", "a", holders(2)), holder("w2", "b"), holder("w3", "a", holders(2))),
			the(first, inside("w2", "a", 10, 21, holders(2)), inside("w3", "b", 9, 40))), 1, 0},
		{"a fault long before the end", all(beats, two, the(first, inside("w2", "a", 10, 30), fault("cut-replies", "w1", 11, 12))), 1, 0},
		{"servers with a guard were slow, and forgot nothing", all(beats, two, the(first, inside("w2", "a", 10, 26),
			fault("pause-server", "", 15, 15, guarded, func(e *history.Event) { e.Lossy = false }))), 1, 0},
		{"a fault of another worker", all(beats, two, the(first, inside("w2", "a", 10, 21), fault("cut-replies", "w3", 15, 16))), 1, 0},
		{"the machine is a bit slow", all(beats, two, the(first, inside("w2", "a", 10, 21), fault("slow-server", "", 15, 15.5))), 1, 0},
	})
}

func TestFalseCircle(t *testing.T) {
	beats := living(60, "w1", "w2", "w3")
	two := the(over(60), holder("w1", "a"), holder("w2", "b"))
	gaveUp := func(worker, keys string, from, until float64, edits ...edit) history.Event {
		return inside(worker, keys, from, until, append(edits, func(e *history.Event) { e.Outcome = "deadlock" })...)
	}
	last := gaveUp("w2", "a", 10, 12)
	waiter := func(keys string, from, until float64) history.Event {
		return done("Obtain", "w3/1", until, "timeout", inLineSince(from), wants(keys))
	}
	killed := all(living(20, "w1"), living(60, "w2", "w3"), the(fault("kill-worker", "w1", 20, 20.5)))
	waits := func(keys string) history.Event {
		return inside("w1", keys, 8, 8, func(e *history.Event) { e.Kind, e.Outcome = history.Wait, "" })
	}
	tell(t, check.FalseCircle, []story{
		{"the last of two", all(beats, two, the(inside("w1", "b", 8, 14), last)), 0, 0},
		{"the last of three, one of whom is only ahead in line", all(beats, two, the(inside("w1", "b", 8, 14), waiter("c,b", 7, 14),
			gaveUp("w2", "c", 10, 12))), 0, 0},
		{"over one who is only ahead in line", all(beats, two, the(waiter("b,c", 9, 14),
			gaveUp("w2", "c", 10, 12))), 0, 0},
		{"over one whose refusal nobody saw", all(beats, two, the(last, inside("w1", "b", 8, 14, func(e *history.Event) { e.Refused = 0 }))), 0, 0},
		{"it waits for what its own caller holds", all(beats, two, the(gaveUp("w2", "b", 10, 12))), 0, 0},
		{"another one had left a moment before", all(beats, two, the(inside("w1", "b", 8, 11.9), last)), 0, 0},
		{"another one came later, but a fault may have cost the place in line", all(beats, two, the(inside("w1", "b", 13, 20),
			gaveUp("w2", "a", 10, 15), fault("cut-replies", "w2", 11, 12))), 0, 0},
		{"another one came later, but a clock was moved", all(beats, two, the(inside("w1", "b", 11, 20), gaveUp("w2", "a", 10, 15),
			fault("clock-back", "", 3, 3))), 0, 0},
		{"another one had left, but may be in line after a fault", all(beats, two, the(inside("w1", "b", 8, 14), gaveUp("w2", "a", 10, 16),
			fault("cut-replies", "w1", 13.8, 13.9))), 0, 0},
		{"a worker was killed", all(beats, two, the(last, fault("kill-worker", "w3", 11, 11.5))), 0, 0},
		{"the other one waited when it was killed", all(killed, two, the(waits("b"), last)), 0, 0},
		{"its process stood still", all(without(beats, "w2", 10.5, 11.5), two, the(last)), 0, 0},
		{"others may wait still", all(living(30, "w1", "w2"), two[1:], the(last)), 0, 0},

		{"nobody waits", all(beats, two, the(last)), 1, 0},
		{"the other one waits for something else", all(beats, two, the(inside("w1", "c", 8, 14), last)), 1, 0},
		{"the other one waited for something else when it was killed", all(killed, two, the(waits("c"), last)), 1, 0},
		{"the other one had waited, long before it was killed", all(killed, two, the(waits("b"), inside("w1", "b", 8, 9), last)), 1, 0},
		{"somebody waits for what it holds, and it waits for another", all(beats, two, the(waiter("b", 8, 14), last)), 1, 0},
		{"the other one shares what it wants", all(beats, the(over(60), holder("w1", "a"), holder("w2", "b", holders(0)),
			inside("w1", "b", 8, 14, holders(0)), last)), 1, 0},
		{"the other one came last", all(beats, two, the(inside("w1", "b", 13, 20), gaveUp("w2", "a", 10, 15))), 1, 0},
		{"the other one came a second later", all(beats, two, the(inside("w1", "b", 11, 20), gaveUp("w2", "a", 10, 15))), 1, 0},
		{"the other one had left", all(beats, two, the(inside("w1", "b", 8, 14), gaveUp("w2", "a", 10, 16))), 1, 0},
		{"its caller holds nothing", all(beats, two, the(inside("w1", "b", 8, 14), gaveUp("w2", "a", 10, 12, under()))), 1, 0},
		{"others ended long ago", all(beats, two[1:], the(last)), 1, 0},
	})
}
