package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// ours is a rule for the runs of a script by our client: for so many of them, or for all if times is 0.
func ours(script string, times int, action faultproxy.Action) faultproxy.Rule {
	return faultproxy.Rule{Client: spec.Ours, Match: spec.Running(script), Times: times, Action: action}
}

// theirs is the same for the client of another process.
func theirs(script string, times int, action faultproxy.Action) faultproxy.Rule {
	return faultproxy.Rule{Client: spec.Theirs, Match: spec.Running(script), Times: times, Action: action}
}

// anyones is the same for all clients together.
func anyones(script string, times int, action faultproxy.Action) faultproxy.Rule {
	return faultproxy.Rule{Match: spec.Running(script), Times: times, Action: action}
}

// during is a rule for the runs of a script by our client from one time after start to another.
func during(script string, start time.Time, from, to time.Duration, action faultproxy.Action) faultproxy.Rule {
	rule := ours(script, 0, action)
	runs := rule.Match
	rule.Match = func(args []string) bool { return runs(args) && time.Since(start) > from && time.Since(start) < to }
	return rule
}

var (
	passes      = faultproxy.Action{}                // the rule counts the requests
	requestLost = faultproxy.CutAfterRequestBytes(0) // and the connection is closed
	replyLost   = faultproxy.CutAfterReplyBytes(0)   // the server has executed the request, and the connection is closed
	noRequests  = faultproxy.Rule{Client: spec.Ours, Action: requestLost}
	noReplies   = faultproxy.Rule{Client: spec.Ours, Action: replyLost}
)

// stuck is what happens to a request whose client is cut off at once, and that reaches the server after d.
func stuck(d time.Duration) faultproxy.Action {
	return faultproxy.CutClient().And(faultproxy.DelayRequest(d))
}

// twoClients returns our Client, whose options may change, and one of another process. Ours has sent its scripts. From then on,
// every message takes 100 µs.
func twoClients(ctx context.Context, on *spec.Quorum, change func(*redis.Options)) (locks, other *redislock.Client) {
	GinkgoHelper()
	locks, other = on.ConnectAs(spec.Ours, change), on.ConnectAs(spec.Theirs, nil)
	Expect(spec.Obtain(ctx, locks, time.Second, nil, "warm").Release(ctx)).To(Succeed())
	time.Sleep(100 * time.Millisecond)
	on.Heal()
	return locks, other
}

// refuseOnce makes server 2 refuse an obtain of "a" that comes now, which then asks it once more.
func refuseOnce(ctx context.Context, on *spec.Quorum) {
	GinkgoHelper()
	Expect(on.Servers[2].Own.Set(ctx, "a", "another", time.Minute).Err()).To(Succeed())
	time.AfterFunc(3*time.Millisecond, func() { on.Servers[2].Memory.Memory.Del("a") })
}

// expectExclusive expects that another Client does not obtain "a" while the lock is valid.
func expectExclusive(ctx context.Context, other *redislock.Client, lock *redislock.Lock) {
	GinkgoHelper()
	second, err := other.Obtain(spec.Within(ctx, time.Second), "a", 5*time.Second, nil)
	if err == nil && time.Now().Before(second.Until()) {
		Expect(lock.Until()).To(BeTemporally("<=", time.Now()))
	}
}

// patient makes a client wait for every answer.
func patient(opt *redis.Options) { opt.ReadTimeout = time.Minute }

// lateReplies makes our client get every reply d after the server has sent it.
func lateReplies(d time.Duration) faultproxy.Rule {
	return faultproxy.Rule{Client: spec.Ours, Action: faultproxy.DelayReply(d)}
}

var fenced = &redislock.Options{FenceKey: "fence"}

// has returns how many keys "a" a server has: one or none.
func has(ctx context.Context, on *spec.Quorum, i int) int64 {
	return on.Servers[i].Own.Exists(ctx, "a").Val()
}

// schedule is a quorum of 3 in memory for a spec that sets when each message arrives. All servers have the scripts, and every
// message takes 100 µs.
type schedule struct {
	*spec.Quorum
	other *redislock.Client // of another process
	start time.Time         // of the spec
}

// describeSchedules runs specs that set when each message arrives. They are about calls that go by themselves.
func describeSchedules(what string, specs func(on *schedule)) bool {
	return spec.DescribeQuorumOf(spec.InMemory, 3, what, func(quorum *spec.Quorum) {
		on := &schedule{Quorum: quorum}
		BeforeEach(func(ctx SpecContext) {
			if spec.Pipelined {
				Skip("these are schedules of calls that go by themselves")
			}
			DeferCleanup(func() { time.Sleep(20 * time.Second) }) // what is still on its way ends
			on.other = on.ConnectAs(spec.Theirs, nil)
			on.warm(ctx, on.other)
			on.warm(ctx, on.Locks)
			on.Heal()
			on.start = time.Now()
		})
		specs(on)
	})
}

// at sleeps until d after the start.
func (on *schedule) at(d time.Duration) { time.Sleep(time.Until(on.start.Add(d))) }

// warm makes a Client send its scripts, and know how fast the servers answer.
func (on *schedule) warm(ctx context.Context, locks *redislock.Client) {
	GinkgoHelper()
	lock := on.everywhere(ctx, locks, time.Second, nil, "warm")
	Expect(lock.Refresh(ctx, time.Second, nil)).To(Succeed())
	time.Sleep(100 * time.Millisecond)
	Expect(lock.Release(ctx)).To(Succeed())
	time.Sleep(100 * time.Millisecond)
}

// connect returns our Client with other options.
func (on *schedule) connect(ctx context.Context, change func(*redis.Options)) *redislock.Client {
	GinkgoHelper()
	locks := on.ConnectAs(spec.Ours, change)
	on.warm(ctx, locks)
	on.start = time.Now()
	return locks
}

// everywhere obtains a lock, and waits until all servers have it.
func (on *schedule) everywhere(
	ctx context.Context, locks *redislock.Client, ttl time.Duration, opt *redislock.Options, keys ...string,
) *redislock.Lock {
	GinkgoHelper()
	lock := spec.Obtain(ctx, locks, ttl, opt, keys...)
	Eventually(on.Values).WithArguments(ctx, keys[0]).Should(Equal(spec.Same(3, lock.Token())))
	return lock
}
