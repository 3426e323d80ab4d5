package claim

import (
	"fmt"
	"strings"
	"testing"
)

// Each line of a transcript is an event and, behind =>, what next makes of it: the phase, how many asks are under way, what
// else is known.
var transcripts = []struct{ name, happens string }{
	{"a lock is obtained and released", `
		ask            => live, 1 under way
		ended          => live
		free           => sending
		answered       => freed
		free           => freed`},
	{"an obtain is abandoned, and is answered after the first round", `
		ask            => live, 1 under way
		free           => sending, 1 under way
		answered       => waiting, 1 under way
		ended, took    => sending
		answered       => freed`},
	{"an obtain is abandoned, and refused after the first round", `
		ask            => live, 1 under way
		free           => sending, 1 under way
		answered       => waiting, 1 under way
		ended          => freed`},
	{"an obtain is abandoned and never answered", `
		ask            => live, 1 under way
		free           => sending, 1 under way
		ended, doubt   => sending, taken, doubtful
		answered       => sending, doubtful
		answered       => lingering, doubtful
		hurry          => lingering, doubtful
		due            => sending
		answered       => freed`},
	{"a reply is lost, and the resend is granted: the first sending may arrive after the Release", `
		ask            => live, 1 under way
		ended, doubt   => live, taken, doubtful
		free           => sending, doubtful
		answered       => lingering, doubtful
		due            => sending
		answered       => freed`},
	{"two obtains are lost: one is executed after each round", `
		ask            => live, 1 under way
		ask            => live, 2 under way
		free           => sending, 2 under way
		ended, took    => sending, 1 under way, taken
		answered       => waiting, 1 under way, taken
		ended, doubt   => sending, doubtful
		answered       => lingering, doubtful
		due            => sending
		answered       => freed`},
	{"a Release fails for a while, and another one joins", `
		free           => sending
		failed         => resting
		due            => sending
		failed         => resting
		free           => resting
		hurry          => sending
		answered       => freed`},
	{"Redis is away until the keys have expired", `
		free           => sending
		failed         => resting
		expired        => givenUp`},
	{"the same, but an obtain is still under way, which may take the keys for another ttl", `
		ask            => live, 1 under way
		free           => sending, 1 under way
		failed         => resting, 1 under way
		expired        => waiting, 1 under way
		ended, took    => sending
		answered       => freed`},
	{"Redis refuses for good, and a later Release tries again", `
		free           => sending
		refused        => givenUp
		free           => sending
		answered       => freed`},
	{"a Refresh that would put keys back under a guard comes after the Release", `
		free           => sending
		ask            => sending
		answered       => freed
		ask            => freed`},
	{"such a Refresh was under way before, and has put a key back", `
		ask            => live, 1 under way
		free           => sending, 1 under way
		answered       => waiting, 1 under way
		ended, took    => sending
		answered       => freed`},
	{"an obtain with a random token is abandoned", `
		ask            => live, 1 under way
		drop           => waiting, 1 under way
		ended, took    => sending
		answered       => freed`},
	{"the same, but the waiter has a position, which is given up at once", `
		ask            => live, 1 under way
		ask            => live, 2 under way
		ended, took    => live, 1 under way, taken
		drop           => sending, 1 under way
		answered       => waiting, 1 under way
		ended          => freed`},
	{"an obtain is refused, and none of its requests is under way or in doubt", `
		ask            => live, 1 under way
		ended          => live
		drop           => freed`},
	{"there is no room for what goes on in the background, and a later Release tries again", `
		free           => sending
		failed         => resting
		crowded        => givenUp
		free           => sending
		answered       => freed`},
}

func (p phase) String() string {
	return [...]string{"live", "sending", "resting", "waiting", "lingering", "freed", "givenUp"}[p]
}

func (k kind) String() string {
	return [...]string{"ask", "learned", "ended", "free", "drop", "answered", "failed", "refused", "due", "hurry", "expired", "crowded"}[k]
}

// said is what a transcript says of a state.
func said(s state) string {
	text := s.phase.String()
	if s.underWay > 0 {
		text += fmt.Sprintf(", %d under way", s.underWay)
	}
	for _, known := range []struct {
		is   bool
		word string
	}{{s.taken, ", taken"}, {s.doubtful, ", doubtful"}} {
		if known.is {
			text += known.word
		}
	}
	return text
}

// read returns the event of a line.
func read(text string) (event, bool) {
	name, rest, _ := strings.Cut(text, ", ")
	for k := ask; k <= crowded; k++ {
		if k.String() == name {
			return event{kind: k, doubt: rest == "doubt", took: rest == "took"}, rest == "" || rest == "doubt" || rest == "took"
		}
	}
	return event{}, false
}

func TestTranscripts(t *testing.T) {
	for _, transcript := range transcripts {
		t.Run(transcript.name, func(t *testing.T) {
			var s state
			for line := range strings.Lines(strings.TrimSpace(transcript.happens)) {
				happens, want, _ := strings.Cut(strings.TrimSpace(line), "=>")
				e, known := read(strings.TrimSpace(happens))
				if !known {
					t.Fatalf("unknown event in %q", line)
				}
				s = next(s, e)
				if got := said(s); got != strings.TrimSpace(want) {
					t.Fatalf("%s => %s, want %s", strings.TrimSpace(happens), got, strings.TrimSpace(want))
				}
			}
		})
	}
}

// What cannot happen is an error of the owner, and no state may hide it.
func TestImpossibleEventsPanic(t *testing.T) {
	for name, c := range map[string]struct {
		from state
		kind kind
	}{
		"a round that was not sent is answered":      {state{phase: resting}, answered},
		"a round of a live claim fails":              {state{}, failed},
		"an ask ends that did not begin":             {state{phase: sending}, ended},
		"a round is refused when all has been freed": {state{phase: freed}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			next(c.from, event{kind: c.kind})
		})
	}
}
