package place_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/answer"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/memnet"
	"github.com/redislock/redislock/internal/testing/spec"
)

// answers are the words of Redis for each answer that passes, by how it begins.
var answers = map[string]string{
	"LOADING ":               "LOADING Redis is loading the dataset in memory",
	"READONLY ":              "READONLY You can't write against a read only replica. script: b6b2, on @user_script:1.",
	"MASTERDOWN ":            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"CLUSTERDOWN ":           "CLUSTERDOWN The cluster is down",
	"TRYAGAIN ":              "TRYAGAIN Multiple keys request during rehashing of slot",
	"NOREPLICAS ":            "NOREPLICAS Not enough good replicas to write. script: b6b2, on @user_script:1.",
	"BUSY ":                  "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"MISCONF ":               "MISCONF Errors writing to the AOF file: No space left on device",
	"OOM ":                   "OOM command not allowed when used memory > 'maxmemory'.",
	"max number of clients ": "ERR max number of clients reached",
}

// places are what a lock can live on: how many servers, and a Client for them.
var places = map[string]struct {
	servers int
	connect func(clients []*redis.Client) redislock.RedisClient // nil for a quorum
	across  bool
}{
	"one server": {servers: 1, connect: func(clients []*redis.Client) redislock.RedisClient { return clients[0] }},
	"a quorum":   {servers: 3},
	"two slots": {servers: 2, across: true, connect: func(clients []*redis.Client) redislock.RedisClient {
		cluster := spec.NewCluster(len(clients), func(i int, opt *redis.Options) *redis.Client {
			opt.Addr, opt.DB = clients[i].Options().Addr, clients[i].Options().DB
			if memnet.Has(opt.Addr) {
				opt.Dialer = memnet.Dial
			}
			return redis.NewClient(opt)
		})
		DeferCleanup(cluster.Close)
		return cluster
	}},
}

// faultyPlaces is what a lock lives on, behind a network that can be broken.
type faultyPlaces struct {
	*spec.Redis

	where   string // a key of places
	proxies []*faultproxy.Proxy
}

// keys returns those of a lock: across slots, some for each.
func (f *faultyPlaces) keys() []string {
	if places[f.where].across {
		return []string{"a", "b", "c", "d", "e", "f"}
	}
	return []string{"a"}
}

// options returns the options with which such a lock can be obtained.
func (f *faultyPlaces) options(opt redislock.Options) *redislock.Options {
	opt.AcrossSlots = places[f.where].across
	return &opt
}

// begin returns a Client.
func (f *faultyPlaces) begin(ctx context.Context, opts ...redislock.ClientOption) *redislock.Client {
	GinkgoHelper()
	Expect(f.Client.FlushAll(ctx).Err()).To(Succeed())
	at := places[f.where]
	f.proxies = nil
	var clients []*redis.Client
	var servers []redislock.RedisClient
	for i := range at.servers {
		proxy := f.NewProxy()
		db := f.Client.Options().DB
		if at.connect == nil { // a database for each server
			db += i
		}
		client := spec.Connect(&redis.Options{Addr: proxy.Addr(), DB: db, MaxRetries: 3})
		f.proxies, clients, servers = append(f.proxies, proxy), append(clients, client), append(servers, client)
	}
	var locks *redislock.Client
	if at.connect != nil {
		locks = redislock.New(at.connect(clients), opts...)
	} else {
		locks = redislock.NewQuorum(servers, opts...)
	}
	DeferCleanup(locks.Close)
	return locks
}

// broken makes the next times runs of the script at each server suffer the fault, all of them if times is 0.
func (f *faultyPlaces) broken(script string, times int, action faultproxy.Action) (heal func()) {
	var faults []*faultproxy.Fault
	for _, proxy := range f.proxies {
		faults = append(faults, proxy.Add(faultproxy.Rule{Match: spec.Running(script), Times: times, Action: action}))
	}
	return func() {
		for _, fault := range faults {
			fault.Remove()
		}
	}
}

// On real servers, see passing_server_test.go: here the answers come from a proxy, and there are too many specs for real
// time.
var _ = spec.DescribeOn(spec.InMemory, "While Redis answers", func(on *spec.Redis) {
	It("tries every answer that passes", func() {
		for _, begin := range answer.Passing() {
			Expect(strings.TrimPrefix(answers[begin], "ERR ")).To(HavePrefix(begin))
		}
		Expect(answers).To(HaveLen(len(answer.Passing())))
	})

	for where := range places {
		for begin, words := range answers {
			if where == "a quorum" && begin != "LOADING " && begin != "max number of clients " {
				continue // its servers are asked as one server is; on two slots, go-redis has rules of its own for some
			}
			Context(words+" on "+where, func() { answersOn(on, where, words, true) })
		}
		for _, words := range []string{"NOPERM this user has no permissions", "WRONGPASS invalid username-password pair"} {
			Context(words+" on "+where, func() { answersOn(on, where, words, false) })
		}
	}
})

// answersOn runs specs of calls that meet an answer. Those in which a call goes on run if the answer passes.
func answersOn(on *spec.Redis, where, words string, passes bool) {
	var locks *redislock.Client
	f := &faultyPlaces{Redis: on, where: where}
	keys, options := f.keys(), f.options
	BeforeEach(func(ctx SpecContext) { locks = f.begin(ctx) })
	broken := func(script string, times int) (heal func()) {
		return f.broken(script, times, faultproxy.RefuseReply(words))
	}
	queue := options(redislock.Options{Queue: true})
	retries := options(redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)})

	wraps := func(err error) {
		GinkgoHelper()
		Expect(err).To(MatchError(ContainSubstring(words)))
		var answered redis.Error
		Expect(errors.As(err, &answered)).To(BeTrue())
		Expect(err.Error()).NotTo(ContainSubstring("\n"))
	}
	fails := func(err error) {
		GinkgoHelper()
		wraps(err)
		Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
		Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
	}

	type call struct {
		script string
		do     func(ctx context.Context, lock *redislock.Lock) error
	}
	calls := map[string]call{
		"Obtain": {"obtain", func(ctx context.Context, _ *redislock.Lock) error {
			_, err := locks.ObtainMulti(ctx, keys, time.Minute, options(redislock.Options{}))
			return err
		}},
		"Refresh": {"refresh", func(ctx context.Context, lock *redislock.Lock) error { return lock.Refresh(ctx, time.Minute, nil) }},
		"Release": {"release", func(ctx context.Context, lock *redislock.Lock) error { return lock.Release(ctx) }},
		"TTL":     {"pttl", func(ctx context.Context, lock *redislock.Lock) error { _, err := lock.TTL(ctx); return err }},
		"Attach": {"inspect", func(ctx context.Context, lock *redislock.Lock) error {
			_, err := locks.Attach(ctx, keys, lock.Token())
			return err
		}},
		"Inspect": {"inspect", func(ctx context.Context, _ *redislock.Lock) error { _, err := locks.Inspect(ctx, keys...); return err }},
		"Line":    {"waiters", func(ctx context.Context, _ *redislock.Lock) error { _, err := locks.Line(ctx, keys[0]); return err }},
	}
	for name, call := range calls {
		It(name+" fails with it", func(ctx SpecContext) {
			var lock *redislock.Lock
			if name != "Obtain" {
				lock = spec.Obtain(ctx, locks, time.Minute, options(redislock.Options{}), keys...)
			}
			heal := broken(call.script, 0)
			fails(call.do(ctx, lock))
			heal()
		})
		if passes {
			It(name+" goes on if it passes at once", func(ctx SpecContext) {
				var lock *redislock.Lock
				if name != "Obtain" {
					lock = spec.Obtain(ctx, locks, time.Minute, options(redislock.Options{}), keys...)
				}
				broken(call.script, 2)
				Expect(call.do(ctx, lock)).To(Succeed())
			})
		}
	}

	goes := func(on bool) string { return map[bool]string{true: "goes on", false: "ends"}[on] }
	It("an Obtain that polls "+goes(passes && where == "a quorum"), func(ctx SpecContext) {
		heal := broken("obtain", 0)
		err := make(chan error, 1)
		go func() {
			lock, why := locks.ObtainMulti(spec.Within(ctx, 10*time.Second), keys, time.Minute, retries)
			if why == nil {
				why = lock.Release(ctx)
			}
			err <- why
		}()
		if passes && where == "a quorum" {
			Consistently(err).WithTimeout(300 * time.Millisecond).ShouldNot(Receive())
			heal()
			Eventually(err).WithTimeout(5 * time.Second).Should(Receive(BeNil()))
			return
		}
		var why error
		Eventually(err).WithTimeout(5 * time.Second).Should(Receive(&why))
		fails(why)
	})

	It("an Obtain in line "+goes(passes), func(ctx SpecContext) {
		held := spec.Obtain(ctx, locks, time.Minute, options(redislock.Options{}), keys...)
		first := spec.StartWaiter(ctx, locks, time.Minute, queue, keys...)
		heal, healBeats := broken("obtain", 0), broken("beat", 0)
		if !passes {
			fails(first.Over())
			heal()
			Expect(held.Release(ctx)).To(Succeed())
			return
		}
		Consistently(first.Done).WithTimeout(1500 * time.Millisecond).ShouldNot(BeClosed())
		heal()
		healBeats()
		Expect(held.Release(ctx)).To(Succeed())
		Expect(first.Granted().Release(ctx)).To(Succeed())
	})

	It("the first try in line "+goes(passes)+" until a deadline", func(ctx SpecContext) {
		heal := broken("obtain", 0)
		began := time.Now()
		_, err := locks.ObtainMulti(spec.Within(ctx, 2*time.Second), keys, time.Minute, queue)
		if !passes {
			fails(err)
			Expect(time.Since(began)).To(BeNumerically("<", time.Second))
			return
		}
		Expect(time.Since(began)).To(BeNumerically("~", 2*time.Second, 50*time.Millisecond))
		wraps(err)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.DeadlineExceeded))
		heal()

		broken("obtain", 12)
		began = time.Now()
		lock := spec.Obtain(spec.Within(ctx, time.Minute), locks, time.Minute, queue, keys...)
		Expect(time.Since(began)).To(BeNumerically("<", time.Second), "first it tries soon again")
		Expect(lock.Release(ctx)).To(Succeed())
	})

	It("the first try in line ends without a deadline", func(ctx SpecContext) {
		free, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer time.AfterFunc(5*time.Second, cancel).Stop()
		heal := broken("obtain", 0)
		began := time.Now()
		_, err := locks.ObtainMulti(free, keys, time.Minute, queue)
		if passes && where == "a quorum" { // it asks more often, because it gives each server less time
			Expect(time.Since(began)).To(BeNumerically("~", 2500*time.Millisecond, 600*time.Millisecond))
		} else {
			Expect(time.Since(began)).To(BeNumerically("<", time.Second))
		}
		fails(err)
		heal()
	})

	It("a Refresh with a strategy goes on", func(ctx SpecContext) { // it retries every error while the lock is valid
		lock := spec.Obtain(ctx, locks, time.Minute, options(redislock.Options{}), keys...)
		heal := broken("refresh", 0)
		err := make(chan error, 1)
		go func() { err <- lock.Refresh(ctx, time.Hour, retries) }()
		Consistently(err).WithTimeout(300 * time.Millisecond).ShouldNot(Receive())
		heal()
		Eventually(err).WithTimeout(5 * time.Second).Should(Receive(BeNil()))
	})

	It("a renewal goes on, and the lock that lapses says why", func(ctx SpecContext) {
		lock := spec.Obtain(ctx, locks, 3*time.Second, options(redislock.Options{}), keys...)
		kept, stop := lock.KeepAlive(ctx)
		defer stop()
		heal := broken("refresh", 0)
		granted := lock.Until()
		time.Sleep(1200 * time.Millisecond)
		heal()
		Eventually(lock.Until).WithTimeout(2 * time.Second).Should(BeTemporally(">", granted))
		Expect(kept.Err()).NotTo(HaveOccurred())
		broken("refresh", 0)
		Eventually(kept.Done()).WithTimeout(5 * time.Second).Should(BeClosed())
		Expect(context.Cause(kept)).To(MatchError(redislock.ErrLapsed))
		wraps(context.Cause(kept))
	})
}

var _ = Describe("docs/guarantees.md", func() {
	It("names every answer that passes, and no other", func() {
		_, row, _ := strings.Cut(spec.Read("docs/guarantees.md"), "| An error that may pass: ")
		row, _, _ = strings.Cut(row, " |")
		var names []string
		for _, begin := range answer.Passing() {
			name := strings.TrimSpace(begin)
			if name == "max number of clients" {
				name = "too many clients"
			}
			names = append(names, name)
		}
		Expect(slices.Sorted(slices.Values(strings.Split(row, ", ")))).To(
			Equal(slices.Sorted(slices.Values(append(names, "the network")))), row)
	})
})
