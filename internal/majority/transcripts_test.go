package majority

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/lease"
)

// Each line of a transcript says what happens after some time, and, behind =>, what the Lock makes of it. The calls are
// named a, b, c and so on, in the order in which they begin; b3 is the request of b to place 3. The state of each place
// is + for held, ? for being acquired, - for missing, and 0 for freed. What follows is until when the lock is valid, or
// that it is not, or has lapsed.
var transcripts = []struct {
	name    string
	places  int
	need    int
	happens string
}{
	{"an Obtain fails when too few places are left", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 denied      => -?? not valid
		2ms   a2 denied      => --? not valid, a fails
		3ms   end            => 000 not valid
		4ms   a3 confirmed   => 000 not valid`},
	{"an Obtain of five places", 5, 3, `
		0ms   obtain 1s      => ????? not valid, asks a1 a2 a3 a4 a5
		1ms   a1 denied      => -???? not valid
		2ms   a2 silence     => --??? not valid
		3ms   a3 confirmed   => --+?? not valid
		4ms   a4 confirmed   => --++? not valid
		5ms   a5 confirmed   => --+++ until 989ms, a confirmed, mends 1 2
		6ms   mend 2         => -?+++ until 989ms, asks a2, mends 1`},
	{"an Obtain whose grants come too late", 2, 2, `
		0ms   obtain 100ms   => ?? not valid, asks a1 a2
		1ms   a1 confirmed   => +? not valid
		98ms  a2 confirmed   => ++ not valid, a fails`},
	{"nobody waits for a Refresh any longer", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   abandon a      => ++? until 989ms
		2ms   refresh 2s     => ++? until 989ms, asks b1 b2
		3ms   b1 confirmed   => ++? until 989ms
		4ms   abandon b      => ++? until 989ms, b fails
		5ms   b2 confirmed   => ++? until 989ms
		6ms   a3 confirmed   => +++ until 989ms`},
	{"one place", 1, 1, `
		0ms   obtain 1s      => ? not valid, asks a1
		1ms   a1 confirmed   => + until 989ms, a confirmed
		400ms renew          => + until 989ms, asks b1
		401ms b1 confirmed   => + until 1.389s, b confirmed
		500ms renew          => + until 1.389s, asks c1
		501ms c1 denied      => - not valid, lost, c fails
		2s    look           => - lapsed at 1.389s`},
	{"a lock that has lapsed is valid again by a Refresh, not by a renewal", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		980ms renew          => +++ until 989ms, asks b1 b2 b3
		981ms b1 confirmed   => +++ until 989ms
		990ms b2 confirmed   => +++ lapsed at 989ms, b fails
		991ms renew          => +++ lapsed at 989ms
		992ms refresh 1s     => +++ lapsed at 989ms, asks c1 c2 c3
		993ms b3 confirmed   => +++ lapsed at 989ms
		994ms c1 confirmed   => +++ lapsed at 989ms
		995ms c2 confirmed   => +++ until 1.981s, c confirmed`},
	{"at a lapse, a place with a request that was never answered is missing", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		2ms   a2 doubtful    => ++? until 989ms, a confirmed
		1s    look           => +-- lapsed at 989ms
		1s    a3 confirmed   => +-- lapsed at 989ms`},
	{"a loss shortens the validity, and is no lapse before that has passed", 5, 3, `
		0ms   obtain 1s      => ????? not valid, asks a1 a2 a3 a4 a5
		1ms   a1 confirmed   => +???? not valid
		1ms   a2 confirmed   => ++??? not valid
		1ms   a3 confirmed   => +++?? until 989ms, a confirmed
		1ms   a4 confirmed   => ++++? until 989ms
		1ms   a5 confirmed   => +++++ until 989ms
		300ms renew          => +++++ until 989ms, asks b1 b2 b3 b4 b5
		301ms b1 confirmed   => +++++ until 989ms
		301ms b2 confirmed   => +++++ until 989ms
		301ms b3 confirmed   => +++++ until 1.289s, b confirmed
		302ms renew          => +++++ until 1.289s, asks c1 c2 c3 c4 c5
		303ms c1 denied      => -++++ until 989ms, lost
		989ms c2 confirmed   => -++++ lapsed at 989ms, c fails`},
	{"a lock with too few places is valid again by a call that began before, not by what was confirmed before", 5, 3, `
		0ms   obtain 1s      => ????? not valid, asks a1 a2 a3 a4 a5
		1ms   a1 confirmed   => +???? not valid
		1ms   a2 confirmed   => ++??? not valid
		1ms   a3 confirmed   => +++?? until 989ms, a confirmed
		300ms renew          => +++?? until 989ms, asks b1 b2 b3
		301ms b1 denied      => -++?? not valid, lost
		302ms a4 confirmed   => -+++? not valid, asks b4
		303ms a5 confirmed   => -++++ not valid, asks b5
		304ms b3 confirmed   => -++++ not valid
		304ms b4 confirmed   => -++++ not valid
		304ms b5 confirmed   => -++++ until 1.289s, b confirmed
		305ms renew          => -++++ until 1.289s, asks c2 c3 c4 c5
		306ms c5 denied      => -+++- not valid, lost
		307ms b2 confirmed   => -+++- not valid
		308ms c2 confirmed   => -+++- not valid
		308ms c3 confirmed   => -+++- not valid
		308ms c4 confirmed   => -+++- until 1.294s, c confirmed, mends 1`},
	{"what was confirmed before a lock had too few places does not count later", 5, 3, `
		0ms   obtain 1s      => ????? not valid, asks a1 a2 a3 a4 a5
		1ms   a1 confirmed   => +???? not valid
		1ms   a2 confirmed   => ++??? not valid
		1ms   a3 confirmed   => +++?? until 989ms, a confirmed
		1ms   a4 confirmed   => ++++? until 989ms
		300ms renew          => ++++? until 989ms, asks b1 b2 b3 b4
		301ms b1 confirmed   => ++++? until 989ms
		301ms b2 confirmed   => ++++? until 989ms
		301ms b3 confirmed   => ++++? until 1.289s, b confirmed, mends 5
		310ms renew          => ++++? until 1.289s, asks c1 c2 c3 c4, mends 5
		311ms c1 confirmed   => ++++? until 1.289s, mends 5
		311ms c2 confirmed   => ++++? until 1.289s, mends 5
		311ms c4 confirmed   => ++++? until 1.299s, c confirmed, mends 5
		320ms renew          => ++++? until 1.299s, asks d1 d2 d3 d4, mends 5
		321ms d1 denied      => -+++? until 1.289s, lost, mends 5
		322ms d2 denied      => --++? not valid, lost
		323ms a5 confirmed   => --+++ not valid, asks d5
		324ms b4 confirmed   => --+++ not valid
		325ms c3 confirmed   => --+++ not valid`},
	{"a place whose own end has passed is missing, although the others go on", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		500ms renew          => +++ until 989ms, asks b1 b2 b3
		501ms b1 confirmed   => +++ until 989ms
		501ms b2 confirmed   => +++ until 1.489s, b confirmed
		990ms b3 confirmed   => ++- until 1.489s
		991ms renew          => ++- until 1.489s, asks c1 c2
		992ms c1 confirmed   => ++- until 1.489s
		992ms c2 confirmed   => ++- until 1.98s, c confirmed, mends 3`},
	{"a key is acquired again by a call that began since it was lost, and as often as needed", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		100ms renew          => +++ until 989ms, asks b1 b2 b3
		101ms b3 denied      => ++- until 989ms, lost
		102ms renew          => ++- until 989ms, asks c1 c2
		103ms b1 confirmed   => ++- until 989ms
		103ms b2 confirmed   => ++- until 1.089s, b confirmed
		104ms c1 confirmed   => ++- until 1.089s
		104ms c2 confirmed   => ++- until 1.091s, c confirmed, mends 3
		105ms mend 3         => ++? until 1.091s, asks c3
		106ms c3 silence     => ++- until 1.091s, mends 3
		107ms mend 3         => ++? until 1.091s, asks c3
		108ms c3 denied      => ++- until 1.091s, mends 3
		109ms refresh 2s     => ++- until 1.091s, asks d1 d2, mends 3
		110ms mend 3         => ++? until 1.091s, asks c3
		111ms c3 confirmed   => +++ until 1.091s, asks d3
		112ms d3 confirmed   => +++ until 1.091s
		113ms d2 confirmed   => +++ until 2.088s, d confirmed`},
	{"a place that has confirmed a call is not missing when its own end passes before the call is confirmed", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		500ms renew          => +++ until 989ms, asks b1 b2 b3
		501ms b2 confirmed   => +++ until 989ms
		501ms b3 confirmed   => +++ until 1.489s, b confirmed
		980ms refresh 2s     => +++ until 1.489s, asks c1 c2 c3
		981ms c1 confirmed   => +++ until 1.489s
		990ms look           => +++ until 1.489s
		991ms c2 confirmed   => +++ until 2.959s, c confirmed`},
	{"a place that has confirmed a call which gains nothing is missing when its own end passes", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		500ms renew          => +++ until 989ms, asks b1 b2 b3
		501ms b2 confirmed   => +++ until 989ms
		501ms b3 confirmed   => +++ until 1.489s, b confirmed
		980ms refresh 2s     => +++ until 1.489s, asks c1 c2 c3
		981ms c1 confirmed   => +++ until 1.489s
		990ms look           => +++ until 1.489s
		991ms abandon c      => -++ until 1.489s, c fails`},
	{"a mend overtakes another one, and an answer to the older one changes nothing", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		2ms   a3 denied      => ++- until 989ms, mends 3
		3ms   mend 3         => ++? until 989ms, asks a3
		300ms renew          => ++? until 989ms, asks b1 b2
		301ms b1 confirmed   => ++? until 989ms
		301ms b2 confirmed   => ++? until 1.289s, b confirmed, mends 3
		302ms mend 3         => ++? until 1.289s, asks b3
		303ms a3 confirmed   => ++? until 1.289s
		304ms b3 confirmed   => +++ until 1.289s
		305ms end            => 000 not valid`},
	{"a mend overtakes another one, and both are answered after the end", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		300ms renew          => ++? until 989ms, asks b1 b2
		301ms b1 confirmed   => ++? until 989ms
		301ms b2 confirmed   => ++? until 1.289s, b confirmed, mends 3
		302ms mend 3         => ++? until 1.289s, asks b3
		303ms renew          => ++? until 1.289s, asks c1 c2
		304ms end            => 000 not valid, c fails
		305ms a3 confirmed   => 000 not valid
		306ms b3 confirmed   => 000 not valid`},
	{"a mend overtakes another one, and the lock lapses before either is answered", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		300ms renew          => ++? until 989ms, asks b1 b2
		301ms b1 confirmed   => ++? until 989ms
		301ms b2 confirmed   => ++? until 1.289s, b confirmed, mends 3
		302ms mend 3         => ++? until 1.289s, asks b3
		1.3s  b3 confirmed   => ++- lapsed at 1.289s
		1.3s  a3 confirmed   => ++- lapsed at 1.289s
		1.4s  refresh 1s     => ++- lapsed at 1.289s, asks c1 c2`},
	{"a Refresh that was sent to no place", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		100ms refresh 200ms  => +++ until 297ms, asks b1 b2 b3
		101ms b1 unsent      => +++ until 297ms
		102ms b2 unsent      => +++ until 297ms, b fails
		103ms b3 unsent      => +++ until 989ms`},
	{"a Refresh that was sent to no place, also not to one that has got the key back", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 denied      => ++- until 989ms, mends 3
		100ms refresh 200ms  => ++- until 297ms, asks b1 b2, mends 3
		101ms renew          => ++- until 297ms, asks c1 c2, mends 3
		102ms c1 confirmed   => ++- until 297ms, mends 3
		102ms c2 confirmed   => ++- until 1.09s, c confirmed, mends 3
		103ms mend 3         => ++? until 1.09s, asks c3
		104ms c3 confirmed   => +++ until 1.09s, asks b3
		105ms renew          => +++ until 1.09s, asks d1 d2 d3
		106ms d1 denied      => -++ until 301ms, lost
		107ms b1 unsent      => -++ until 301ms
		107ms b2 unsent      => -++ until 301ms, b fails
		108ms b3 unsent      => -++ until 1.09s`},
	{"a Refresh that was sent to no place does not give back what a place had before it lost the key", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		100ms renew          => +++ until 989ms, asks b1 b2 b3
		100ms refresh 200ms  => +++ until 297ms, asks c1 c2 c3, b fails
		100ms b1 denied      => -++ until 297ms, lost
		100ms abandon c      => -++ until 297ms, c fails
		100ms renew          => -++ until 297ms, asks d2 d3
		100ms d2 found 200ms => -++ until 297ms
		100ms d3 found 200ms => -++ until 297ms, d confirmed, mends 1
		100ms mend 1         => ?++ until 297ms, asks d1
		100ms d1 found 200ms => +++ until 297ms
		101ms c1 unsent      => +++ until 297ms
		101ms c2 unsent      => +++ until 297ms
		101ms c3 unsent      => +++ until 989ms
		102ms renew          => +++ until 989ms, asks e1 e2 e3
		103ms e2 denied      => +-+ until 297ms, lost`},
	{"a Refresh that was sent to one place", 3, 2, `
		0ms   obtain 1s      => ??? not valid, asks a1 a2 a3
		1ms   a1 confirmed   => +?? not valid
		1ms   a2 confirmed   => ++? until 989ms, a confirmed
		1ms   a3 confirmed   => +++ until 989ms
		100ms refresh 200ms  => +++ until 297ms, asks b1 b2 b3
		101ms b1 unsent      => +++ until 297ms
		102ms b2 silence     => +++ until 297ms, b fails
		103ms b3 unsent      => +++ until 297ms`},
	{"a Refresh that was sent to no place before the lock lapsed", 2, 2, `
		0ms   obtain 1s      => ?? not valid, asks a1 a2
		1ms   a1 confirmed   => +? not valid
		1ms   a2 confirmed   => ++ until 989ms, a confirmed
		100ms refresh 200ms  => ++ until 297ms, asks b1 b2
		300ms b1 unsent      => ++ lapsed at 297ms, b fails
		301ms b2 unsent      => ++ lapsed at 297ms`},
	{"a renewal that began before a Refresh was confirmed does not bring back the old ttl", 2, 2, `
		0ms   obtain 1s      => ?? not valid, asks a1 a2
		1ms   a1 confirmed   => +? not valid
		1ms   a2 confirmed   => ++ until 989ms, a confirmed
		100ms refresh 10s    => ++ until 989ms, asks b1 b2
		101ms renew          => ++ until 989ms, asks c1 c2
		102ms b1 confirmed   => ++ until 989ms
		102ms b2 confirmed   => ++ until 9.999s, b confirmed
		103ms c1 confirmed   => ++ until 9.999s
		103ms c2 confirmed   => ++ until 9.999s, c confirmed
		5s    renew          => ++ until 9.999s, asks d1 d2
		5s    d1 confirmed   => ++ until 9.999s
		5s    d2 confirmed   => ++ until 14.899s, d confirmed`},
	{"an Attach takes what it finds for granted, and does not know the ttl", 3, 2, `
		0ms   attach         => ??? not valid, asks a1 a2 a3
		1ms   a1 found 500ms => +?? not valid
		2ms   a2 silence     => ++? not valid
		3ms   a3 found 400ms => +++ until 395ms, a confirmed
		4ms   renew          => +++ until 395ms
		5ms   refresh 1s     => +++ until 395ms, asks b1 b2 b3
		6ms   b1 confirmed   => +++ until 395ms
		7ms   b2 denied      => +-+ until 395ms, lost
		8ms   b3 confirmed   => +-+ until 994ms, b confirmed
		9ms   renew          => +-+ until 994ms, asks c1 c3
		10ms  c1 confirmed   => +-+ until 994ms
		10ms  c3 confirmed   => +-+ until 998ms, c confirmed, mends 2`},
	{"an Attach to a lock that is gone", 3, 2, `
		0ms   attach         => ??? not valid, asks a1 a2 a3
		1ms   a1 denied      => -?? not valid
		2ms   a2 denied      => --? not valid, a fails`},
	{"nine places", 9, 5, `
		0ms   obtain 1s      => ????????? not valid, asks a1 a2 a3 a4 a5 a6 a7 a8 a9
		1ms   a1 confirmed   => +???????? not valid
		1ms   a2 confirmed   => ++??????? not valid
		1ms   a3 confirmed   => +++?????? not valid
		1ms   a4 confirmed   => ++++????? not valid
		1ms   a9 confirmed   => ++++????+ until 989ms, a confirmed
		2ms   a5 confirmed   => +++++???+ until 989ms
		2ms   a6 confirmed   => ++++++??+ until 989ms
		2ms   a7 confirmed   => +++++++?+ until 989ms
		2ms   a8 confirmed   => +++++++++ until 989ms`},
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	for _, tr := range transcripts {
		t.Run(tr.name, func(t *testing.T) {
			var p player
			for line := range strings.SplitSeq(strings.TrimSpace(tr.happens), "\n") {
				happens, want, _ := strings.Cut(strings.TrimSpace(line), " => ")
				if got := p.play(t, tr.places, tr.need, strings.Fields(happens)); got != want {
					t.Errorf("%s\n got %s\nwant %s", happens, got, want)
				}
			}
		})
	}
}

// A player plays a transcript.
type player struct {
	lock  *Lock
	now   time.Time
	calls []*Call
	open  []open
	fails []*Call // those that were seen to fail
}

// open is a request that is not answered.
type open struct {
	Request
	made time.Time
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// play plays one line, and returns what has become of the lock.
func (p *player) play(t *testing.T, places, need int, words []string) string {
	p.now = at(duration(t, words[0]))
	var asks []Request
	out := ""
	switch words[1] {
	case "obtain":
		p.lock, asks = Acquiring(places, need, p.now, duration(t, words[2]))
	case "attach":
		p.lock, asks = Attaching(places, need, p.now)
	case "refresh":
		_, asks = p.lock.Refresh(p.now, duration(t, words[2]), "")
	case "renew":
		_, asks = p.lock.Renew(p.now)
	case "mend":
		asks = []Request{p.lock.Mend(int(words[2][0] - '1'))}
	case "abandon":
		p.lock.Abandon(p.calls[words[2][0]-'a'])
	case "end":
		p.lock.End()
	case "look":
	default:
		out, asks = p.answer(t, words[1:])
	}
	for _, r := range asks {
		if !slices.Contains(p.calls, r.Call) {
			p.calls = append(p.calls, r.Call)
		}
		p.open = append(p.open, open{r, p.now})
	}
	return p.describe(asks, out)
}

// answer answers a request.
func (p *player) answer(t *testing.T, words []string) (out string, asks []Request) {
	i := slices.IndexFunc(p.open, func(o open) bool { return p.names(o.Request) == words[0] })
	if i < 0 {
		t.Fatalf("%s was not asked, or has answered", words[0])
	}
	r := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	var a Answer
	switch words[1] {
	case "confirmed", "doubtful":
		a = Answer{Confirmed, lease.ValidUntil(r.made, r.Call.TTL), words[1] == "doubtful"}
	case "found":
		a = Answer{Result: Confirmed, Until: lease.ValidUntil(r.made, duration(t, words[2]))}
	case "denied":
		a.Result = Denied
	case "silence":
		a = Answer{Result: Silence, Doubtful: true}
	case "unsent":
		a.Result = Unsent
	default:
		t.Fatalf("unknown: %s", words)
	}
	o := p.lock.Answer(r.Request, p.now, a)
	if o.Confirmed {
		out += ", " + p.name(r.Call) + " confirmed"
	}
	if o.Lost {
		out += ", lost"
	}
	return out, o.Asks
}

func (p *player) name(c *Call) string { return string(rune('a' + slices.Index(p.calls, c))) }

func (p *player) names(r Request) string { return fmt.Sprintf("%s%d", p.name(r.Call), r.Place+1) }

func (p *player) describe(asks []Request, out string) string {
	var b strings.Builder
	until := p.lock.Until(p.now)
	for i := range p.lock.holds {
		b.WriteByte("?+-0"[p.lock.holds[i].state])
	}
	switch {
	case p.lock.HasLapsed(p.now):
		fmt.Fprintf(&b, " lapsed at %v", until.Sub(epoch))
	case lease.PassedBy(p.now, until):
		b.WriteString(" not valid")
	default:
		fmt.Fprintf(&b, " until %v", until.Sub(epoch))
	}
	b.WriteString(out)
	for i, r := range asks {
		b.WriteString([]string{", asks ", " "}[min(i, 1)] + p.names(r))
	}
	for _, c := range p.calls {
		if p.lock.Fails(c) && !slices.Contains(p.fails, c) {
			p.fails = append(p.fails, c)
			fmt.Fprintf(&b, ", %s fails", p.name(c))
		}
	}
	for i, place := range p.lock.Missing(p.now) {
		fmt.Fprintf(&b, "%s %d", []string{", mends", ""}[min(i, 1)], place+1)
	}
	return b.String()
}

// The calls of a lock do not pile up while a place hangs: when its own end has passed, it is not asked any longer.
func TestHang(t *testing.T) {
	t.Parallel()
	now, rounds := epoch, 0
	l, requests := Acquiring(3, 2, now, time.Second)
	for hung := 0; rounds < 100; rounds++ {
		for _, r := range requests {
			if r.Place == 2 && rounds > 0 {
				hung++
				continue
			}
			l.Answer(r, now, Answer{Result: Confirmed, Until: lease.ValidUntil(now, time.Second)})
		}
		if n := len(l.calls); n > 5 || hung > 4 {
			t.Fatalf("after %d rounds, there are %d calls, and %d requests to the place that hangs", rounds, n, hung)
		}
		now = now.Add(300 * time.Millisecond)
		_, requests = l.Renew(now)
	}
	if l.IsHeld(2) || !slices.Equal(l.Missing(now), []int{2}) || l.HasLapsed(now) {
		t.Errorf("place 3 is held: %v, missing: %v, the lock has lapsed: %v", l.IsHeld(2), l.Missing(now), l.HasLapsed(now))
	}
}
