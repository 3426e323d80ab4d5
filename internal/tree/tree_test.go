package tree_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/tree"
)

// TestTree builds trees of lines like
//
//	a: T1 T2/3 | W1 W2* (T1 T2) W3/3
//
// The locks T1 and T2 hold the key a, T2 with a limit of 3, and in its line are W1, W2, whose caller holds T1 and T2, and W3. A
// star is no limit.
func TestTree(t *testing.T) {
	for _, test := range []struct{ name, found, want string }{
		{"waiters of a lock, in order", `
			b: T1 | W2
			a: T1 | W1 W3`, `
			T1 holds b a
			  W2 waits for b
			  W1 waits for a
			  W3 waits for a`},
		{"what the caller of a waiter holds is below it", `
			a: T1 | W1(T2)
			b: T2 | W2 W3(T3)
			c: T3 |`, `
			T1 holds a
			  W1 waits for a
			    T2 holds b
			      W2 waits for b
			      W3 waits for b
			        T3 holds c`},
		{"the lock with the most waiters comes first", `
			a: T1 |
			b: T2 | W1 W2`, `
			T2 holds b
			  W1 waits for b
			  W2 waits for b
			T1 holds a`},
		{"a waiter is below each lock that it waits for", `
			a: T1 | W1
			b: T2 | W1`, `
			T1 holds a
			  W1 waits for a
			T2 holds b
			  W1 waits for b`},
		{"a key that nobody holds", `
			a: T1 | W1
			b:    | W1 W2`, `
			T1 holds a
			  W1 waits for a
			nobody holds b
			  W1 waits for b
			  W2 waits for b`},
		{"a lock that is known by its name only has no place", `
			a: T1 | W1(gone)`, `
			T1 holds a
			  W1 waits for a`},
		{"two in a circle", `
			a: T1 | W1(T2)
			b: T2 | W2(T1)`, `
			T1 holds a
			  W1 waits for a
			    T2 holds b
			      W2 waits for b
			        T1 again
			circle: W1 waits for a of T1, W2 waits for b of T2: release one of a b`},
		{"a caller that waits for itself", `
			a: T1 | W1(T1)`, `
			T1 holds a
			  W1 waits for a
			    T1 again
			circle: W1 waits for a of T1: release one of a`},
		{"a circle below a lock that can go on", `
			x: T0 | W0(T1)
			a: T1 | W1(T2)
			b: T2 | W0 W2(T1)`, `
			T0 holds x
			  W0 waits for x
			    T1 holds a
			      W1 waits for a
			        T2 holds b
			          W0 waits for b
			          W2 waits for b
			            T1 again
			circle: W0 waits for b of T2, W1 waits for a of T1: release one of b a`},
		{"over a line: the first waits for what the second holds", `
			k: X  | W1 W2(T2)
			m: T2 | W1`, `
			X holds k
			  W1 waits for k
			  W2 waits for k
			    T2 holds m
			      W1 waits for m
			circle: W2 waits for k behind W1, W1 waits for m of T2: release one of m`},
		{"over a line of a key that nobody holds", `
			k:    | W1 W2(T2)
			m: T2 | W1`, `
			nobody holds k
			  W1 waits for k
			  W2 waits for k
			    T2 holds m
			      W1 waits for m
			circle: W2 waits for k behind W1, W1 waits for m of T2: release one of m`},
		{"those in between in a line are left out", `
			a: T1 | W1 W2 W3(T2)
			b: T2 | W4(T1)`, `
			T1 holds a
			  W1 waits for a
			  W2 waits for a
			  W3 waits for a
			    T2 holds b
			      W4 waits for b
			        T1 again
			circle: W3 waits for a of T1, W4 waits for b of T2: release one of a b`},
		{"two circles with a lock in common, each once", `
			a: T1 | W2(T2) W3(T3)
			b: T2 | W1(T1)
			c: T3 | W1(T1)`, `
			T1 holds a
			  W2 waits for a
			    T2 holds b
			      W1 waits for b
			        T1 again
			  W3 waits for a
			    T3 holds c
			      W1 waits for c
			circle: W2 waits for a of T1, W1 waits for b of T2: release one of a b
			circle: W3 waits for a of T1, W1 waits for c of T3: release one of a c`},
		{"no circle: another holder of a permit can go on", `
			p: T1/2 X/2 | W1/2(T2)
			b: T2 | W2(T1)`, `
			X holds p
			  W1 waits for p
			    T2 holds b
			      W2 waits for b
			        T1 holds p again
			`},
		{"a circle: all holders of permits are in it", `
			p: T1/2 T2/2 | W2/2(T1) W3/2(T2)`, `
			T1 holds p
			  W2 waits for p
			    T1 again
			  W3 waits for p
			    T2 holds p again
			circle: W2 waits for p of T1: release one of p
			circle: W3 waits for p of T2: release one of p`},
		{"no circle: readers do not wait for each other", `
			s: R* | R1* R2*(T2)
			b: T2 | R1*`, `
			R holds s
			  R1 waits for s
			  R2 waits for s
			    T2 holds b
			      R1 waits for b
			`},
		{"a circle over a writer between readers", `
			s: R* | W1(T1) R2*(T2)
			a: T1 | W4
			b: T2 | W1`, `
			R holds s
			  W1 waits for s
			    T1 holds a
			      W4 waits for a
			  R2 waits for s
			    T2 holds b
			      W1 waits for b
			circle: R2 waits for s behind W1, W1 waits for b of T2: release one of b`},
		{"a key held by what is not a lock", `
			a: ? | W1`, `
			nobody holds a
			  W1 waits for a`},
		{"a lock at several places of which a waiter has a part", `
			a: W2 | W1
			b: W1 | W2`, `
			W2 holds a
			  W1 waits for a
			W1 holds b
			  W2 waits for b`},
		{"two waiters with one custom token", `
			a: T1 | W W`, `
			T1 holds a
			  W waits for a
			  W waits for a`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, want := written(tree.Build(statuses(test.found))), unindent(test.want)
			if got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

func TestNarrow(t *testing.T) {
	const found = `
		x: T0 | W0(T1)
		a: T1 | W1(T2)
		b: T2 | W2(T1)
		s: T2* T8* |
		y: T9 | W9
		z:    | W9`
	for _, test := range []struct {
		key, roots, locks string
		circles           int
	}{
		{"y", "T9", "T9", 0},
		{"z", "z", "", 0},
		{"x", "T0", "T0 T1 T2 T8", 1},
		{"b", "T0", "T0 T1 T2 T8", 1},
		{"s", "T0 T8", "T0 T1 T2 T8", 1},
	} {
		tr := tree.Build(statuses(found))
		for _, k := range tr.Keys {
			if k.Key == test.key {
				tr.Narrow([]*tree.Key{k})
				break
			}
		}
		var roots, locks []string
		for _, l := range tr.Roots {
			roots = append(roots, l.Token)
		}
		for _, k := range tr.Unheld {
			roots = append(roots, k.Key)
		}
		for i, l := range tr.Locks {
			locks = append(locks, l.Token)
			if l.ID != i+1 {
				t.Errorf("%s: %s has the ID %d", test.key, l.Token, l.ID)
			}
		}
		if got := strings.Join(roots, " "); got != test.roots {
			t.Errorf("%s: roots %s, want %s", test.key, got, test.roots)
		}
		if got := strings.Join(locks, " "); got != test.locks {
			t.Errorf("%s: locks %s, want %s", test.key, got, test.locks)
		}
		if len(tr.Circles) != test.circles {
			t.Errorf("%s: %d circles", test.key, len(tr.Circles))
		}
	}
}

func TestOwnerOf(t *testing.T) {
	since := time.Date(2026, 3, 1, 4, 10, 0, 0, time.UTC)
	for metadata, want := range map[string]tree.Owner{
		`{"host":"api-3","pid":4121,"user":"bob","command":"./ship","now":"2026-03-01T04:10:00Z"}`: {
			User: "bob", Host: "api-3", PID: "4121", Command: "./ship", Since: since,
		},
		`{"program":"orders","since":"2026-03-01T04:10:00Z"}`: {Command: "orders", Since: since},
		`{}`: {},
	} {
		if got, ok := tree.OwnerOf(metadata); got != want || !ok {
			t.Errorf("%s: %v, %t", metadata, got, ok)
		}
	}
	for _, metadata := range []string{"", "job 7", "null", "[]", `{"a"`} {
		if got, ok := tree.OwnerOf(metadata); got != (tree.Owner{}) || ok {
			t.Errorf("%s: %v, %t", metadata, got, ok)
		}
	}
}

// statuses reads the lines of a test.
func statuses(text string) (all []redislock.Status) {
	place := map[string]int{}
	wants := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		held, waiting, _ := strings.Cut(rest, "|")
		s := redislock.Status{Key: key}
		for token := range strings.FieldsSeq(held) {
			name, limit := limitOf(token)
			s.TTL = time.Minute
			switch {
			case name == "?":
			case limit == 1:
				s.Token = name
			default:
				s.Token, s.HolderCount = name, s.HolderCount+1
				s.Holders = append(s.Holders, redislock.Holder{Token: name, TTL: s.TTL, Limit: limit})
			}
		}
		waiting = strings.ReplaceAll(waiting, "(", " (")
		for word := range strings.FieldsSeq(waiting) {
			if strings.HasPrefix(word, "(") {
				w := &s.Line[len(s.Line)-1]
				for token := range strings.SplitSeq(strings.Trim(word, "()"), ",") {
					w.Holds = append(w.Holds, redislock.Holding{Token: token})
				}
				continue
			}
			name, limit := limitOf(word)
			if place[name] == 0 {
				place[name] = len(place) + 1
			}
			wants[name] = append(wants[name], key)
			s.Line = append(s.Line, redislock.Waiter{Token: name, Limit: limit, Since: time.UnixMicro(int64(place[name]))})
		}
		s.Waiters = len(s.Line)
		all = append(all, s)
	}
	return all
}

func limitOf(word string) (name string, limit int) {
	if name, is := strings.CutSuffix(word, "*"); is {
		return name, 0
	}
	name, digits, limited := strings.Cut(word, "/")
	if !limited {
		return name, 1
	}
	limit, err := strconv.Atoi(digits)
	if err != nil {
		panic(err)
	}
	return name, limit
}

// written writes a tree with a line for each lock and each waiter.
func written(t *tree.Tree) string {
	var out strings.Builder
	shown, lines := map[*tree.Lock]bool{}, map[*tree.Key]bool{}
	var line func(k *tree.Key, indent string)
	lock := func(l *tree.Lock, indent string) {
		if shown[l] {
			fmt.Fprintf(&out, "%s%s again\n", indent, l.Token)
			return
		}
		shown[l] = true
		fmt.Fprintf(&out, "%s%s holds", indent, l.Token)
		for _, h := range l.Keys {
			fmt.Fprintf(&out, " %s", h.Key.Key)
		}
		if k := l.Keys[0].Key; lines[k] {
			fmt.Fprint(&out, " again")
		}
		fmt.Fprintln(&out)
		for _, h := range l.Keys {
			line(h.Key, indent+"  ")
		}
	}
	below := map[*tree.Waiter]bool{}
	line = func(k *tree.Key, indent string) {
		if lines[k] {
			return
		}
		lines[k] = true
		for _, p := range k.Places {
			fmt.Fprintf(&out, "%s%s waits for %s\n", indent, p.Waiter.Token, k.Key)
			if below[p.Waiter] {
				continue
			}
			below[p.Waiter] = true
			for _, l := range p.Waiter.Locks {
				lock(l, indent+"  ")
			}
		}
	}
	for _, l := range t.Roots {
		lock(l, "")
	}
	for _, k := range t.Unheld {
		fmt.Fprintf(&out, "nobody holds %s\n", k.Key)
		line(k, "  ")
	}
	for _, c := range t.Circles {
		var steps []string
		for i, s := range c.Steps {
			step := s.Place.Waiter.Token + " waits for " + s.Place.Key.Key
			if s.Lock != nil {
				step += " of " + s.Lock.Token
			} else {
				step += " behind " + c.Steps[(i+1)%len(c.Steps)].Place.Waiter.Token
			}
			steps = append(steps, step)
		}
		var keys []string
		for _, k := range c.WayOut() {
			keys = append(keys, k.Key)
		}
		fmt.Fprintf(&out, "circle: %s: release one of %s\n", strings.Join(steps, ", "), strings.Join(keys, " "))
	}
	return out.String()
}

func unindent(text string) string {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\n"), "\t", "")
	return strings.TrimRight(text, "\n") + "\n"
}
