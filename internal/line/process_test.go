//go:build unix

package line_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/spec"
)

// staleAfter is how long after its last sign of life a waiter still counts as live.
const staleAfter = 3 * time.Second

var inLine = &redislock.Options{Queue: true, FenceKey: "{q}:fence"}

var _ = Describe("Of processes that wait in line,", Label(spec.OnServer), func() {
	var client, journal *redis.Client
	var locks *redislock.Client

	BeforeEach(func() {
		spec.RequireServer()
		spec.CheckLeaks()
		server := spec.StartServer()
		client = spec.Connect(&redis.Options{Addr: server.Addr()})
		journal = spec.Connect(&redis.Options{Addr: server.Addr(), DB: journalDB})
		locks = redislock.New(client)
	})

	// notes returns what the processes have written down so far.
	notes := func(ctx context.Context) (all []note) {
		GinkgoHelper()
		for _, line := range journal.LRange(ctx, journalKey, 0, -1).Val() {
			var n note
			Expect(json.Unmarshal([]byte(line), &n)).To(Succeed())
			all = append(all, n)
		}
		return all
	}
	// granted returns the grants in their order, once n have left again. No key had two holders at a time, and its fencing
	// tokens have risen.
	granted := func(ctx context.Context, n int) (grants []note) {
		GinkgoHelper()
		Eventually(func() int { return len(notes(ctx)) }).WithTimeout(15 * time.Second).Should(Equal(2 * n))
		holder, fence := map[string]string{}, map[string]int64{}
		for _, note := range notes(ctx) {
			for _, key := range note.Keys {
				if note.Leaves {
					Expect(holder[key]).To(Equal(note.Name))
					delete(holder, key)
					continue
				}
				Expect(holder).NotTo(HaveKey(key), "%s got %s", note.Name, key)
				Expect(note.Fence).To(BeNumerically(">", fence[key]))
				holder[key], fence[key] = note.Name, note.Fence
			}
			if !note.Leaves {
				grants = append(grants, note)
			}
		}
		return grants
	}
	namesOf := func(grants []note) (names []string) {
		for _, grant := range grants {
			names = append(names, grant.Name)
		}
		return names
	}

	It("a killed one delays nobody: a release sees that nobody receives its message", func(ctx SpecContext) {
		processes := map[string]*queueProcess{}
		for _, name := range []string{"killed", "one", "two"} {
			processes[name] = startQueueProcess(client)
		}
		type lineUp struct {
			key   string
			names []string
			after time.Duration // of the kill, the holder releases
			held  *redislock.Lock
			free  time.Time
		}
		var lineUps []*lineUp
		for _, after := range []time.Duration{0, staleAfter / 2, staleAfter + 200*time.Millisecond} {
			for _, names := range [][]string{{"killed", "one", "two"}, {"one", "killed", "two"}, {"one", "two", "killed"}} {
				l := &lineUp{key: fmt.Sprint(names, after), names: names, after: after}
				l.held = spec.Obtain(ctx, locks, time.Minute, inLine, l.key)
				lineUps = append(lineUps, l)
			}
		}
		for _, l := range lineUps {
			for _, name := range l.names {
				joins(ctx, client, l.key, func() { processes[name].wait(stint{Name: name, Keys: []string{l.key}}) })
			}
		}
		spec.AwaitSubscriptions(ctx, client, lineUps[0].key)
		processes["killed"].kill()
		killed := time.Now()
		time.Sleep(20 * time.Millisecond) // the server has to see that the connections are closed
		for _, l := range lineUps {
			time.Sleep(time.Until(killed.Add(l.after)))
			l.free = time.Now()
			Expect(l.held.Release(ctx)).To(Succeed())
		}

		grants := granted(ctx, 2*len(lineUps))
		late := map[string]time.Duration{}
		for _, l := range lineUps {
			var order []string
			for _, grant := range grants {
				if grant.Keys[0] != l.key {
					continue
				}
				order = append(order, grant.Name)
				late[l.key] = max(late[l.key], grant.At.Sub(l.free))
				l.free = grant.At // it leaves as soon as it has written that down
			}
			Expect(order).To(Equal([]string{"one", "two"}), l.key)
		}
		for key, by := range late {
			Expect(by).To(BeNumerically("<", noise), "%s: %v", key, late)
		}
		AddReportEntry("late at most", fmt.Sprint(late), ReportEntryVisibilityFailureOrVerbose)
		Eventually(func() []string { return client.Keys(ctx, "*").Val() }).
			WithTimeout(staleAfter+pace+noise).Should(ConsistOf(inLine.FenceKey), "nothing needs sweeping")
	})

	It("a killed one is passed over after 3 s of silence if its subscription is not known to be open", func(ctx SpecContext) {
		Expect(client.ACLSetUser(ctx, "default", "-subscribe").Err()).To(Succeed())
		killed, live := startQueueProcess(client), startQueueProcess(client)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		joins(ctx, client, "a", func() { killed.wait(stint{Name: "killed", Keys: []string{"a"}}) })
		joins(ctx, client, "a", func() { live.wait(stint{Name: "live", Keys: []string{"a"}}) })
		killed.kill()
		free := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		grants := granted(ctx, 1)
		Expect(grants[0].At).To(BeTemporally("~", free.Add(staleAfter-pace/2), pace/2+noise))
	})

	It("the first is granted when the ttl of a killed holder ends", func(ctx SpecContext) {
		holder, first, second := startQueueProcess(client), startQueueProcess(client), startQueueProcess(client)
		ttls := map[string]time.Duration{"short": 500 * time.Millisecond, "long": 2500 * time.Millisecond}
		held := map[string]*redislock.Lock{}
		for key, ttl := range ttls {
			held[key] = spec.Obtain(ctx, locks, time.Minute, inLine, key)
			joins(ctx, client, key, func() { holder.wait(stint{Name: "holder", Keys: []string{key}, TTL: ttl, Stays: true, Silent: true}) })
			joins(ctx, client, key, func() { first.wait(stint{Name: "first", Keys: []string{key}}) })
			joins(ctx, client, key, func() { second.wait(stint{Name: "second", Keys: []string{key}}) })
		}
		taken := map[string]string{} // by the holder, with that token
		for key, held := range held {
			Expect(held.Release(ctx)).To(Succeed())
			Eventually(func() string {
				taken[key] = client.Get(ctx, key).Val()
				return taken[key]
			}).WithTimeout(5 * time.Second).WithPolling(time.Millisecond).ShouldNot(BeElementOf("", held.Token()))
		}
		holder.kill()
		free := map[string]time.Time{} // without a lock that the holder had lost before, because the machine was too busy to renew it
		for key := range ttls {
			ends := time.Now().Add(client.PTTL(ctx, key).Val())
			if client.Get(ctx, key).Val() == taken[key] {
				free[key] = ends
			}
		}
		grants := granted(ctx, 4)
		Expect(namesOf(grants)).To(Equal([]string{"first", "second", "first", "second"}))
		late := map[string]time.Duration{}
		for _, grant := range grants {
			key := grant.Keys[0]
			if free[key].IsZero() || grant.Name != "first" {
				continue
			}
			late[key] = grant.At.Sub(free[key])
			Expect(late[key]).To(BeNumerically(">", -5*time.Millisecond), key)
			Expect(late[key]).To(BeNumerically("<", noise), key)
		}
		AddReportEntry("late", fmt.Sprint(late), ReportEntryVisibilityFailureOrVerbose)
	})

	It("a stopped one is passed over, and gets its turn when it goes on", func(ctx SpecContext) {
		stopped, one, two := startQueueProcess(client), startQueueProcess(client), startQueueProcess(client)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		a := []string{"a"}
		id := joins(ctx, client, "a", func() { stopped.wait(stint{Name: "stopped", Keys: a}) })
		joins(ctx, client, "a", func() { one.wait(stint{Name: "one", Keys: a}) })
		joins(ctx, client, "a", func() { two.wait(stint{Name: "two", Keys: a, Stays: true}) })
		joins(ctx, client, "a", func() { one.wait(stint{Name: "three", Keys: a}) })

		Expect(stopped.Process.Signal(syscall.SIGSTOP)).To(Succeed())
		time.Sleep(2*pace + pace/4) // it has missed a sign of life, so it is not handed the lock
		Expect(held.Release(ctx)).To(Succeed())
		Eventually(func() []note { return notes(ctx) }).WithTimeout(2 * staleAfter).Should(HaveLen(3)) // two has it
		Expect(spec.Line(ctx, client, "a")).NotTo(ContainElement(id))
		Expect(stopped.Process.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(func() []string { return spec.Line(ctx, client, "a") }).WithTimeout(2 * time.Second).Should(HaveLen(2))
		Expect(spec.Line(ctx, client, "a")[0]).To(Equal(id), "it has kept its ticket")
		Expect(journal.RPush(ctx, "two", "leave").Err()).To(Succeed())
		Expect(namesOf(granted(ctx, 4))).To(Equal([]string{"one", "two", "stopped", "three"}))
	})

	It("one that sleeps until its line has expired comes back", func(ctx SpecContext) {
		asleep := startQueueProcess(client)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		id := joins(ctx, client, "a", func() { asleep.wait(stint{Name: "asleep", Keys: []string{"a"}}) })
		Expect(asleep.Process.Signal(syscall.SIGSTOP)).To(Succeed())
		Eventually(func() int64 { return client.Exists(ctx, spec.LineKey("a")).Val() }).WithTimeout(3 * staleAfter).Should(BeZero())
		Expect(asleep.Process.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(func() []string { return spec.Line(ctx, client, "a") }).WithTimeout(2 * time.Second).Should(Equal([]string{id}))
		Expect(held.Release(ctx)).To(Succeed())
		Expect(namesOf(granted(ctx, 1))).To(Equal([]string{"asleep"}))
	})

	It("100 killed at once do not get in the way of 20 others for longer than one", func(ctx SpecContext) {
		killed, live := startQueueProcess(client), startQueueProcess(client)
		held := spec.Obtain(ctx, locks, time.Minute, nil, "{q}:a", "{q}:b", "{q}:c")
		var names []string
		for i, keys := range overlapping(20) {
			for j, others := range append(overlapping(3), []string{"{q}:a"}, []string{"{q}:a", "{q}:b", "{q}:c"}) {
				joins(ctx, client, others[0], func() { killed.wait(stint{Name: fmt.Sprint("killed ", i, j), Keys: others}) })
			}
			names = append(names, fmt.Sprint("live ", i))
			joins(ctx, client, keys[0], func() { live.wait(stint{Name: names[i], Keys: keys}) })
		}
		spec.AwaitSubscriptions(ctx, client, "{q}:a")
		killed.kill()
		time.Sleep(20 * time.Millisecond) // the server has to see that the connection is closed
		free := time.Now()
		Expect(held.Release(ctx)).To(Succeed())
		grants := granted(ctx, 20)
		Expect(namesOf(grants)).To(Equal(names))
		Expect(grants[19].At.Sub(free)).To(BeNumerically("<", time.Second))
		AddReportEntry("the first and the last waited", fmt.Sprint(grants[0].At.Sub(free), grants[19].At.Sub(free)),
			ReportEntryVisibilityFailureOrVerbose)
	})
})

const (
	// queueProcessEnv tells the test binary to be a process that waits in line, and on which server.
	queueProcessEnv = "REDISLOCK_TEST_QUEUE_PROCESS"

	// journalDB is the database with what the processes write down, apart from the locks.
	journalDB  = 1
	journalKey = "journal"
)

// stint is what a process is told to do: to wait in line for the keys, hold them for a moment, and leave.
type stint struct {
	Name   string
	Keys   []string
	TTL    time.Duration // 0: 2 s
	Stays  bool          // until it is told to leave
	Silent bool          // writes nothing down
}

// note is what a process writes down when it has got its keys, and before it leaves them.
type note struct {
	stint
	At     time.Time // of the grant
	Fence  int64
	Leaves bool
}

// queueProcess is a process that waits in line as it is told.
type queueProcess struct {
	*exec.Cmd
	orders *json.Encoder
}

// startQueueProcess starts a process that ends with the spec, and with us.
func startQueueProcess(client *redis.Client) *queueProcess {
	GinkgoHelper()
	p := &queueProcess{Cmd: exec.Command(os.Args[0], "-test.run=^TestQueueProcess$", "-test.count=1")}
	p.Env = append(os.Environ(), queueProcessEnv+"="+client.Options().Addr)
	p.Stderr = os.Stderr
	input, err := p.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	p.orders = json.NewEncoder(input)
	Expect(p.Start()).To(Succeed())
	DeferCleanup(p.kill)
	return p
}

func (p *queueProcess) wait(s stint) {
	GinkgoHelper()
	Expect(p.orders.Encode(s)).To(Succeed())
}

func (p *queueProcess) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// TestQueueProcess is what such a process runs.
func TestQueueProcess(t *testing.T) {
	addr := os.Getenv(queueProcessEnv)
	if addr == "" {
		t.Skip("the specs of waiting processes run it")
	}
	locks := redislock.New(redis.NewClient(&redis.Options{Addr: addr}))
	journal := redis.NewClient(&redis.Options{Addr: addr, DB: journalDB})
	for orders := json.NewDecoder(os.Stdin); ; {
		var s stint
		if orders.Decode(&s) != nil {
			return // nobody is there any more
		}
		go s.serve(t.Context(), locks, journal) // ends with the process
	}
}

// serve does what the stint says, in the process.
func (s stint) serve(ctx context.Context, locks *redislock.Client, journal *redis.Client) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	write := func(n note) {
		if s.Silent {
			return
		}
		text, err := json.Marshal(n)
		must(err)
		must(journal.RPush(ctx, journalKey, text).Err())
	}
	lock, err := locks.ObtainMulti(ctx, s.Keys, cmp.Or(s.TTL, 2*time.Second), inLine)
	must(err)
	_, stop := lock.KeepAlive(ctx)
	defer stop()
	write(note{stint: s, At: time.Now(), Fence: lock.FenceToken()})
	if s.Stays {
		must(journal.BLPop(ctx, 0, s.Name).Err())
	}
	write(note{stint: s, Leaves: true})
	must(lock.Release(ctx))
}
