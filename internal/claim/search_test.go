package claim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The search plays all interleavings of one claim with three asks, one key, and messages that may be lost or late, against
// next. It shows that next suffices, and, with one rule changed, what each rule is for.

// where is how far an ask has come.
type where int

const (
	unsent   where = iota
	sent           // and not executed
	took           // executed: it has taken the key
	had            // executed: the key was there
	late           // its owner knows that it was not answered, and it may still be executed
	over           // nothing more comes of it
	rejected       // it was not sent
)

// world is a claim, the server and what is between them. It is comparable.
type world struct {
	claim state
	key   bool
	asks  [3]where
	round where // unsent, sent or took, which means executed
}

// move is something that can happen in a world.
type move struct {
	name string
	to   world
}

// rules is next, or a variant of it.
type rules func(state, event) state

// on reports an event to the claim. If a round is to follow, it is sent.
func (w world) on(next rules, e event) world {
	w.claim = next(w.claim, e)
	if w.claim.phase == sending && w.round == unsent {
		w.round = sent
	}
	return w
}

// moves returns what can happen next.
func (w world) moves(next rules) (all []move) {
	add := func(name string, to world) { all = append(all, move{name, to}) }
	report := func(name string, from world, e event) {
		add(name, from.on(next, e))
	}
	for i, at := range w.asks {
		put := func(to where) world {
			w := w
			w.asks[i] = to
			return w
		}
		name := func(what string) string { return fmt.Sprintf("ask %d %s", i+1, what) }
		switch at {
		case unsent:
			if to := w.on(next, event{kind: ask}); to.claim.underWay > w.claim.underWay {
				to.asks[i] = sent
				add(name("begins"), to)
			} else {
				add(name("is refused"), put(rejected))
			}
		case sent:
			run := put(had)
			if !w.key {
				run = put(took)
			}
			run.key = true
			add(name("is executed"), run)
			report(name("ends unanswered"), put(late), event{kind: ended, doubt: true})
		case took:
			report(name("is answered: taken"), put(over), event{kind: ended, took: true})
			report(name("ends unanswered, executed"), put(over), event{kind: ended, doubt: true})
			if w.claim.phase == live {
				report(name("is granted"), put(over), event{kind: ended})
			}
		case had:
			report(name("is answered: had"), put(over), event{kind: ended})
			report(name("ends unanswered, executed"), put(over), event{kind: ended, doubt: true})
		case late:
			run := put(over)
			run.key = true
			add(name("is executed late"), run)
			add(name("never arrives"), put(over))
		}
	}
	switch w.round {
	case sent:
		run := w
		run.key, run.round = false, took
		add("the round is executed", run)
		report("the round fails", w.without(), event{kind: failed})
	case took:
		report("the round is answered", w.without(), event{kind: answered})
		report("the round fails, executed", w.without(), event{kind: failed})
	}
	switch {
	case w.claim.phase == resting:
		report("the pause ends", w, event{kind: due})
	case w.claim.phase == lingering && !slices.Contains(w.asks[:], late): // a second has passed
		report("the second has passed", w, event{kind: due})
	}
	if w.claim.phase == live {
		report("Release", w, event{kind: free})
	}
	if w.claim.phase != live && w.claim.phase != freed {
		report("Close", w, event{kind: hurry})
	}
	return all
}

// without returns the world without its round.
func (w world) without() world {
	w.round = unsent
	return w
}

// problem says what is wrong with a world, if something is.
func (w world) problem() string {
	switch {
	case w.claim.phase == freed && w.key:
		return "the claim counts as freed, and the key is there"
	case w.claim.phase == freed && slices.ContainsFunc(w.asks[:], func(at where) bool { return at == sent || at == late }):
		return "the claim counts as freed, and a request may still take the key"
	case w.claim.phase == waiting && w.claim.underWay == 0:
		return "nothing will ever happen to the claim"
	}
	return ""
}

// search visits every world. It returns how many there are, and the shortest way to a problem; none if there is no problem.
func search(next rules) (visited int, way []string) {
	type step struct {
		from world
		name string
	}
	start := world{}
	came := map[world]step{start: {}}
	for queue := []world{start}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		if problem := w.problem(); problem != "" {
			way = []string{problem}
			for w != start {
				way = append(way, came[w].name)
				w = came[w].from
			}
			slices.Reverse(way)
			return len(came), way
		}
		for _, m := range w.moves(next) {
			if _, known := came[m.to]; !known {
				came[m.to] = step{w, m.name}
				queue = append(queue, m.to)
			}
		}
	}
	return len(came), nil
}

func TestEveryInterleavingLeavesNothing(t *testing.T) {
	visited, way := search(next)
	if way != nil {
		t.Fatalf("after %d worlds:\n%s", visited, strings.Join(way, "\n"))
	}
	if visited < 1000 {
		t.Errorf("only %d worlds", visited)
	}
	t.Logf("%d worlds", visited)
}

// Without any one of the rules, some interleaving breaks a promise.
func TestEachRuleIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		change rules
		breaks string
	}{
		"a claim that is being freed asks for nothing more": {
			func(s state, e event) state {
				if e.kind == ask {
					s.underWay++
					return s
				}
				return next(s, e)
			}, "may still take the key",
		},
		"a freeing waits for the asks that are under way": {
			func(s state, e event) state {
				if e.kind == answered {
					s.underWay = 0
				}
				if e.kind == ended && s.underWay == 0 {
					return s
				}
				return next(s, e)
			}, "the claim counts as freed",
		},
		"what an ask takes after a round is freed by another": {
			func(s state, e event) state {
				e.took = false
				return next(s, e)
			}, "the key is there",
		},
		"a round follows a second after an ask without an answer": {
			func(s state, e event) state {
				e.doubt = false
				return next(s, e)
			}, "the claim counts as freed",
		},
		"nobody hurries that second": {
			func(s state, e event) state {
				if e.kind == hurry && s.phase == lingering {
					e.kind = due
				}
				return next(s, e)
			}, "the claim counts as freed",
		},
		"a round that has failed is followed by another": {
			func(s state, e event) state {
				if e.kind == failed {
					e.kind = answered
				}
				return next(s, e)
			}, "the key is there",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, way := search(c.change)
			if way == nil {
				t.Fatal("nothing breaks without this rule")
			}
			if last := way[len(way)-1]; !strings.Contains(last, c.breaks) {
				t.Errorf("something else breaks:\n%s", strings.Join(way, "\n"))
			}
		})
	}
}
