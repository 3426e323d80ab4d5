package several_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/faultproxy"
	"github.com/redislock/redislock/internal/spec"
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
