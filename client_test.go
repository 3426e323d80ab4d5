package redislock_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("Close", func(on *spec.Redis) {
	It("refuses new locks, leaves the held ones usable, and can be called again", func(ctx SpecContext) {
		locks := redislock.New(on.Client)
		lock := spec.Obtain(ctx, locks, time.Minute, nil, "a")
		Expect(locks.Close()).To(Succeed())
		Expect(locks.Close()).To(Succeed())
		_, err := locks.Obtain(ctx, "b", time.Minute, nil)
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = locks.Inspect(ctx, "a")
		Expect(err).To(Equal(redislock.ErrClosed))
		_, err = locks.Attach(ctx, []string{"a"}, lock.Token())
		Expect(err).To(Equal(redislock.ErrClosed))
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(lock.Refresh(ctx, time.Hour, nil)).To(Succeed())
		Expect(lock.Release(ctx)).To(Succeed())
		Expect((*redislock.Client)(nil).Close()).To(Succeed())
	})
})

var _ = spec.DescribeOnRedis("A client of the caller's own", func(on *spec.Redis) {
	It("sees every call through EvalSha and Eval", func(ctx SpecContext) {
		Expect(on.Client.ScriptFlush(ctx).Err()).To(Succeed())
		const lines = "a{a}:redislock:line b{b}:redislock:line"
		own := &spec.Wrapper{Scripter: on.Client}
		sent := spec.CountCalls(on.Client)
		locks := redislock.New(own)
		lock := spec.Obtain(ctx, locks, time.Minute, &redislock.Options{Token: "t"}, "a", "b")
		Expect(lock.Refresh(ctx, time.Minute, nil)).To(Succeed())
		Expect(lock.TTL(ctx)).To(BeNumerically(">", 0))
		Expect(locks.Inspect(ctx, "a")).To(HaveLen(1))
		Expect(lock.Release(ctx)).To(Succeed())
		Expect(own.Seen).To(Equal([]string{
			"evalsha [a b " + lines + "] [t  60000 2 0 1]", "eval [a b " + lines + "] [t  60000 2 0 1]",
			"evalsha [a b] [t 60000  0]", "eval [a b] [t 60000  0]",
			"evalsha [a b] [t]", "eval [a b] [t]",
			"evalsha [a a{a}:redislock:line] [1]", "eval [a a{a}:redislock:line] [1]",
			"evalsha [a b " + lines + "] [t 2]", "eval [a b " + lines + "] [t 2]",
		}))
		Expect(sent.Count()).To(Equal(5))
	})

	DescribeTable("obtains nothing with a reply that makes no sense", func(ctx SpecContext, reply any) {
		_, err := redislock.New(&replying{Scripter: on.Client, reply: reply}).Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring("unexpected reply")))
	},
		Entry("a text", "QUEUED"),
		Entry("a text in a list", []any{"QUEUED"}),
		Entry("a refusal with a part missing", []any{int64(-1), int64(5)}),
	)

	It("leaves nothing behind after a reply that makes no sense", func(ctx SpecContext) {
		_, err := redislock.New(&garbling{Scripter: on.Client}).Obtain(ctx, "a", time.Minute, nil)
		Expect(err).To(MatchError(ContainSubstring("unexpected reply")))
		Eventually(func() []string { return on.Keys(ctx) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

// garbling is a client that garbles the first reply.
type garbling struct {
	redis.Scripter
	once sync.Once
}

func (g *garbling) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return g.garbled(g.Scripter.EvalSha(ctx, sha, keys, args...))
}

func (g *garbling) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return g.garbled(g.Scripter.Eval(ctx, script, keys, args...))
}

func (g *garbling) garbled(cmd *redis.Cmd) *redis.Cmd {
	if cmd.Err() == nil {
		g.once.Do(func() { cmd.SetVal("QUEUED") })
	}
	return cmd
}

// replying is a client that gives every script the same reply.
type replying struct {
	redis.Scripter
	reply any
}

func (r *replying) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	return redis.NewCmdResult(r.reply, nil)
}
