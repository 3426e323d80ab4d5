package check_test

import (
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
)

// holders says how many may hold each of the keys.
func holders(n ...int64) edit { return func(e *history.Event) { e.Holders = n } }

// reader is a grant of "a" that it shares.
func reader(op string, from, until float64, edits ...edit) history.Event {
	return grant(op, from, until, "a", append([]edit{holders(0)}, edits...)...)
}

// permit is a grant of "a" that lets n hold it.
func permit(n int64, op string, from, until float64, edits ...edit) history.Event {
	return grant(op, from, until, "a", append([]edit{holders(n)}, edits...)...)
}

func TestLimits(t *testing.T) {
	tell(t, check.Limits, []story{
		{"many readers", the(reader("w1/1", 1, 5), reader("w2/1", 2, 6), reader("w3/1", 3, 7)), 0, 0},
		{"as many as all allow", the(permit(2, "w1/1", 1, 5), permit(3, "w2/1", 2, 6)), 0, 0},
		{"one after the other", the(permit(2, "w1/1", 1, 3), permit(2, "w2/1", 1, 6), permit(2, "w3/1", 3, 7)), 0, 0},
		{"two handles of one token", the(permit(2, "w1/1", 1, 5, custom("t")), permit(2, "w1/2", 2, 5, custom("t")),
			permit(2, "w2/1", 3, 6)), 0, 0},
		{"other keys", the(grant("w1/1", 1, 5, "a,b", holders(2, 2)), grant("w2/1", 2, 6, "b,c", holders(2, 2)),
			grant("w3/1", 3, 6, "a,c", holders(2, 2))), 0, 0},

		{"one too many", the(permit(2, "w1/1", 1, 5), permit(2, "w2/1", 2, 6), permit(2, "w3/1", 3, 7)), 1, 0},
		{"two too many", the(permit(2, "w1/1", 1, 5), permit(2, "w2/1", 2, 6), permit(2, "w3/1", 3, 7), permit(2, "w4/1", 4, 7)), 2, 0},
		{"more than the first one allows", the(permit(2, "w1/1", 1, 5), permit(9, "w2/1", 2, 6), reader("w3/1", 3, 7)), 1, 0},
		{"more than the last one allows", the(permit(9, "w1/1", 1, 5), reader("w2/1", 2, 6), permit(2, "w3/1", 3, 7)), 1, 0},
		{"one too many of the second key", the(grant("w1/1", 1, 5, "x,a", holders(0, 2)), permit(2, "w2/1", 2, 6), permit(2, "w3/1", 3, 7)), 1, 0},
		{"Redis forgot one of them", the(permit(2, "w1/1", 1, 9), fault("restart-server", "", 1.5, 1.6, lossy), permit(2, "w2/1", 2, 6),
			permit(2, "w3/1", 3, 7)), 0, 1},
		{"Redis forgot one of them, and had a guard", the(permit(2, "w1/1", 1, 9), fault("flush-all", "", 1.5, 1.6, guarded),
			permit(2, "w2/1", 2, 6), permit(2, "w3/1", 3, 7)), 1, 0},
	})
	tell(t, check.Exclusion, []story{
		{"a reader and then a writer", the(reader("w1/1", 1, 3), grant("w2/1", 3, 4, "a")), 0, 0},
		{"a reader who comes back after another", the(reader("w1/1", 1, 2), claim("w1/1", 5, 6), reader("w2/1", 3, 4)), 0, 0},
		{"a permit of one is a lock", the(permit(1, "w1/1", 1, 3), reader("w2/1", 3, 4)), 0, 0},

		{"a writer beside a reader", the(reader("w1/1", 1, 5), grant("w2/1", 2, 4, "a")), 1, 0},
		{"a reader beside a writer", the(grant("w1/1", 1, 5, "a"), reader("w2/1", 2, 4)), 1, 0},
		{"a reader beside a permit of one", the(permit(1, "w1/1", 1, 5), reader("w2/1", 2, 4)), 1, 0},
		{"a writer of one of two keys", the(grant("w1/1", 1, 5, "a,b", holders(0, 1)), grant("w2/1", 2, 4, "a,b", holders(0, 1))), 1, 0},
		{"a reader who comes back after a writer", the(reader("w1/1", 1, 2), claim("w1/1", 5, 6), grant("w2/1", 3, 4, "a")), 1, 0},
	})
}

func TestFenceOfReaders(t *testing.T) {
	both := func(first, second int64, edits ...edit) []history.Event { // the second one began before the first was granted
		return the(reader("w1/1", 1, 3, fenced("f", first)), reader("w2/1", 2, 4, append([]edit{fenced("f", second), begun(0.5)}, edits...)...))
	}
	tell(t, check.Fence, []story{
		{"in either order if they overlap", both(8, 7), 0, 0},
		{"the same on a quorum if they overlap", both(7, 7, onQuorum), 0, 0},

		{"the same", both(7, 7), 1, 0},
		{"falling for one that came later", the(reader("w1/1", 1, 3, fenced("f", 8)), reader("w2/1", 2, 4, fenced("f", 7))), 1, 0},
		{"falling for a writer", the(reader("w1/1", 1, 2, fenced("f", 8)), grant("w2/1", 2, 4, "a", fenced("f", 7), begun(0.5))), 1, 0},
	})
	refused := func(first, second history.Event, at float64) []history.Event {
		return the(first, second, write(second.Op, "f", 2.25, 8, "taken"), write(first.Op, "f", at, 7, "refused"))
	}
	g := func(op string, from, until float64, token int64, edits ...edit) history.Event {
		return grant(op, from, until, "a", append([]edit{fenced("f", token)}, edits...)...)
	}
	shared, other := holders(0), func(e *history.Event) { e.Keys = []string{"b"} }
	tell(t, check.Store, []story{
		{"a reader is refused after another", refused(g("w1/1", 1, 5, 7, shared), g("w2/1", 2, 5, 8, shared), 2.5), 0, 0},
		{"a writer is refused when another has it", refused(g("w1/1", 1, 2, 7), g("w2/1", 2, 5, 8), 2.5), 0, 0},

		{"by a writer whose hold is over", refused(g("w1/1", 2.3, 5, 7, shared, other, begun(0.5)), g("w2/1", 2, 2.3, 8), 2.5), 1, 0},
		{"by a reader of another key", refused(g("w1/1", 1, 5, 7, shared, other), g("w2/1", 2, 5, 8, shared), 2.5), 1, 0},
	})
}

func TestLineOfReaders(t *testing.T) {
	beats := living(20, "w1", "w2", "w3")
	wait := func(n int64) history.Event { return permit(n, "w1/1", 12, 16, queued(10, 10.1)) }
	come := func(n int64) history.Event { return permit(n, "w2/1", 11, 11.5, begun(10.9)) }
	tell(t, check.Line, []story{
		{"readers go together", all(beats, the(wait(0), come(0))), 0, 0},
		{"permits go together if there is room", all(beats, the(wait(2), come(2))), 0, 0},
		{"it was granted first, but heard of it later", all(beats, the(permit(3, "w1/1", 12, 15, queued(10, 10.1)), come(4))), 0, 0},
		{"there is room beside one", all(beats, the(wait(3), come(3), permit(3, "w3/1", 9, 13))), 0, 0},

		{"a reader overtakes a writer", all(beats, the(wait(1), come(0))), 1, 0},
		{"a writer overtakes a reader", all(beats, the(wait(0), come(1))), 1, 0},
		{"another limit", all(beats, the(wait(3), come(4))), 1, 0},
		{"there is no room for both", all(beats, the(wait(2), come(2), permit(2, "w3/1", 9, 11.9))), 1, 0},
	})
}

func TestServedReaders(t *testing.T) {
	beats := living(40, "w1", "w2")
	waiter := func(n int64) history.Event {
		return done("Obtain", "w1/1", 30, "timeout", queued(10, 10.1), limit(30), wants("a"), holders(n))
	}
	samples := func(held ...string) (all []history.Event) {
		for s := 9.; s < 30; s += 0.2 {
			all = append(all, sample(s, held...))
		}
		return all
	}
	long := func(n int64) history.Event { return permit(n, "w2/1", 1, 31) }
	tell(t, check.Served, []story{
		{"a writer waits for a reader", all(beats, the(waiter(1), long(0)), samples("a w2/1 40")), 0, 0},
		{"a reader waits for a writer", all(beats, the(waiter(0), long(1)), samples("a w2/1 40")), 0, 0},
		{"a reader waits for nobody knows whom", all(beats, the(waiter(0)), samples("a - 5")), 0, 0},
		{"there is no room", all(beats, the(waiter(2), long(2)), samples("a w2/1 40", "a w3/1 40")), 0, 0},

		{"a reader waits for a reader", all(beats, the(waiter(0), long(0)), samples("a w2/1 40")), 1, 0},
		{"there is room", all(beats, the(waiter(2), long(2)), samples("a w2/1 40")), 1, 0},
		{"behind one who would share it as well", all(beats, the(waiter(0), long(0), done("Obtain", "w2/2", 29, "timeout", queued(9, 9.1),
			limit(29), wants("a"), holders(0))), samples("a w2/1 40")), 2, 0},
	})
}

func TestRepairOfReaders(t *testing.T) {
	kept := all(living(20, "w1", "w2"), the(reader("w1/1", 1, 2, func(e *history.Event) { e.TTL = time.Second })))
	for s := 1.1; s < 12; s += 0.1 {
		kept = append(kept, alive("w1/1", s, s+0.9))
	}
	four := the(quorum(sample(10.05, "a w1/1 1", "a w1/1 1", "a w1/1 1", "a w1/1 1", "a w2/1 1")))
	tell(t, check.Repair, []story{
		{"four have it, and nobody knows who has it at the fifth", all(kept, four), 0, 0},
		{"four have it, and another reader has it at the fifth", all(kept, the(reader("w2/1", 9, 9.5)), four), 1, 0},
		{"four have it, and a reader with a limit has it at the fifth", all(kept, the(permit(9, "w2/1", 9, 9.5)), four), 1, 0},
	})
}
