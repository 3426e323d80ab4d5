package script_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

// What the scripts do while the guard is closed, and that it changes nothing else.
var _ = describeGuarded("the scripts that obey it:", func(on *guarded) {
	const entry = "box/1 1 60000 0 t"
	// closure matches {-2, closed, id}.
	closure := func(ctx context.Context, ms int64) types.GomegaMatcher {
		GinkgoHelper()
		return HaveExactElements(int64(-2), left(ms), on.id(ctx))
	}

	Describe("obtain.lua", func() {
		It("{-2, closed, id}: free keys, its own and another's, nothing written", func(ctx SpecContext) {
			on.shut(ctx, minute)
			on.Set(ctx, "mine", "t old")
			on.Set(ctx, "taken", "t0")
			Expect(on.Client.Set(ctx, "fence", 5, 0).Err()).To(Succeed())
			before := on.Everything(ctx)
			for range 2 { // the second time as a replay
				for _, keys := range []string{"free lf", "mine lm", "taken lt"} {
					Expect(on.run(ctx, "obtain", keys, "t", "m", hour)).To(closure(ctx, minute), keys)
					Expect(on.run(ctx, "obtain", keys, "t", "m", hour, 1, "0")).To(closure(ctx, minute), keys)
				}
				Expect(on.run(ctx, "obtain", "free mine fence", "t", "m", hour, 2, "1")).To(closure(ctx, minute))
				Expect(on.run(ctx, "obtain", "free mine taken", "t", "m", hour, 3, "0")).To(closure(ctx, minute))
			}
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		It("{-2, closed, id}: also a waiter, if its keys have no lines", func(ctx SpecContext) {
			on.shut(ctx, minute)
			on.Set(ctx, "mine", "t")
			before := on.Everything(ctx)
			Expect(on.run(ctx, "obtain", "free", "t", "", hour, 1, "0", "0", entry, 0, "0", 3)).To(closure(ctx, minute))
			Expect(on.run(ctx, "obtain", "free mine fence", "t", "", hour, 2, "1", "0", entry, 0, "0", 3)).To(closure(ctx, minute))
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		// wait lets a waiter try for keys without a fence key, and returns the ticket that it has in each of their lines.
		wait := func(ctx context.Context, keys string, n int, entry string, ticket any) int64 {
			GinkgoHelper()
			before := on.now(ctx) * 1000
			reply, err := on.run(ctx, "obtain", keys, "t", "", hour, n, "0", "0", entry, ticket, "1", 3)
			Expect(err).NotTo(HaveOccurred())
			Expect(reply).To(HaveExactElements(int64(-1), BeNumerically(">=", 0), BeNumerically(">", 0), BeNumerically(">=", before),
				Not(BeNil()), left(minute), on.id(ctx)))
			given := reply.(spec.List)[2].(int64)
			for _, line := range strings.Fields(keys)[n:] {
				Expect(int64(on.Client.ZScore(ctx, line, entry).Val())).To(Equal(given), line)
			}
			return given
		}

		It("{-1, …, closed, id}: a waiter gets a position in line, and keeps it", func(ctx SpecContext) {
			on.shut(ctx, minute)
			on.Set(ctx, "mine", "t")
			on.Set(ctx, "taken", "t0")
			for i, keys := range []string{"free lf", "mine lm", "taken lt", "free mine l1 l2", "mine taken l3 l4"} {
				n := len(strings.Fields(keys)) / 2
				entry := fmt.Sprintf("box/%d %d 60000 0 t", i, n)
				ticket := wait(ctx, keys, n, entry, 0)
				Expect(wait(ctx, keys, n, entry, 0)).To(Equal(ticket), "the reply was lost")
				Expect(wait(ctx, keys, n, entry, ticket)).To(Equal(ticket))
			}
			for _, line := range []string{"lf", "lm", "lt", "l1", "l2", "l3", "l4"} {
				on.Client.Del(ctx, line)
			}
			Expect(on.locks(ctx)).To(Equal(map[string]string{"mine": "t 1m", "taken": "t0 1m"}))
		})

		It("{-1, …, closed, id}: a waiter does not mint a fencing token", func(ctx SpecContext) {
			on.shut(ctx, minute)
			for range 2 {
				Expect(on.run(ctx, "obtain", "a fence la", "t", "", hour, 1, "1", "0", "box/1 1 60000 5 fencet", 0, "0", 3)).To(HaveLen(7))
			}
			Expect(on.Keys(ctx)).To(ConsistOf("la", keyname.GuardMarker))
		})

		It("{-1, ms, …, closed, id}: the next try comes when the guard opens, if that is soon", func(ctx SpecContext) {
			var reply any
			Eventually(func() any { // a slow machine may miss the time before it opens
				var err error
				on.shut(ctx, 900)
				on.Client.Del(ctx, "a", "la")
				reply, err = on.run(ctx, "obtain", "a la", "t", "", hour, 1, "0", "0", entry, 0, "0", 3)
				Expect(err).NotTo(HaveOccurred())
				return reply
			}).Should(HaveLen(7))
			closed := reply.(spec.List)[5].(int64)
			Expect(closed).To(And(BeNumerically(">", 0), BeNumerically("<=", 900)))
			Expect(reply.(spec.List)[1]).To(Equal(closed + 1))
		})

		It("{-1, …, closed, id}: waiters get the order in which they are served when the guard is open", func(ctx SpecContext) {
			const next = "box/2 1 60000 0 t"
			on.shut(ctx, minute)
			first := wait(ctx, "a la", 1, entry, 0)
			second := wait(ctx, "a la", 1, next, 0)
			Expect(second).To(BeNumerically(">", first))
			on.open(ctx)
			Expect(on.run(ctx, "obtain", "a la", "t2", "", hour, 1, "0", "0", next, second, "0", 3)).
				To(HaveExactElements(int64(-1), none, second, BeNumerically(">", 0), BeEmpty()))
			Expect(on.run(ctx, "obtain", "a la", "t", "", hour, 1, "0", "0", entry, first, "0", 3)).To(Equal(int64(1)))
			Expect(on.Client.ZScore(ctx, "la", entry).Err()).To(MatchError(redis.Nil))
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("t"))
		})
	})

	Describe("obtain_each.lua", func() {
		args := []any{"t", "", hour, "t", "m", hour, "t", "", hour, "t", "", hour}

		It("{-2, closed, id}: for each, nothing written", func(ctx SpecContext) {
			on.shut(ctx, minute)
			on.Set(ctx, "mine", "t")
			on.Set(ctx, "taken", "t0")
			on.Stand(ctx, "line", 17, "box/7 1 60000 0 t7", spec.FullLife, true)
			before := on.Everything(ctx)
			for range 2 {
				one := closure(ctx, minute)
				Expect(on.run(ctx, "obtain_each", "free mine taken queued 1 2 3 line", args...)).To(HaveExactElements(one, one, one, one))
			}
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		It("{-2, closed, id}: by the first use of a server, which closes the guard once", func(ctx SpecContext) {
			one := spec.List{int64(-2), int64(hour), on.id(ctx)}
			Expect(on.run(ctx, "obtain_each", "a b c d 1 2 3 4", args...)).To(Equal(spec.List{one, one, one, one}))
			Expect(on.Keys(ctx)).To(ConsistOf(keyname.GuardMarker))
		})
	})

	Describe("release.lua", func() {
		It("0: every key was mine or gone, and a replay finds them gone", func(ctx SpecContext) {
			on.shut(ctx, minute)
			on.Set(ctx, "a", "t")
			on.Set(ctx, "b", "t m")
			for range 2 {
				Expect(on.run(ctx, "release", "a gone b", "t", 3)).To(Equal(none))
				Expect(on.run(ctx, "release", "gone lg", "t")).To(Equal(none))
			}
			Expect(on.locks(ctx)).To(BeEmpty())
		})

		It("{i, …}: another's and of another type, but not gone; the rest deleted", func(ctx SpecContext) {
			on.shut(ctx, minute)
			on.Set(ctx, "mine", "t")
			on.Set(ctx, "taken", "t0")
			on.Client.SAdd(ctx, "s", "x")
			for range 2 {
				Expect(on.run(ctx, "release", "gone taken mine s", "t", 4)).To(Equal(spec.List{int64(2), int64(4)}))
			}
			Expect(on.locks(ctx)).To(HaveLen(2))
		})

		It("0: by the first use of a server, which closes the guard", func(ctx SpecContext) {
			Expect(on.run(ctx, "release", "gone lg", "t")).To(Equal(none))
			Expect(on.marker(ctx)).To(marked(on.id(ctx), hour, 0, BeNumerically(">", 0)))
		})

		// released lets a release delete a key for which somebody waits, and returns what is heard and what is left.
		released := func(ctx context.Context) (message string, left map[string]string) {
			GinkgoHelper()
			on.Set(ctx, "a", "t")
			heard := on.Listen(ctx, "box")
			on.Stand(ctx, "la", 17, "box/7 1 60000 0 t7", spec.FullLife, true)
			Expect(on.run(ctx, "release", "a la", "t", 1)).To(Equal(none))
			on.Client.Publish(ctx, spec.Inboxes+"box", "end")
			for next := ""; next != "end"; {
				if next = heard(); next != "end" {
					message += next
				}
			}
			left = on.locks(ctx)
			delete(left, "la")
			return message, left
		}

		It("wakes the first waiter, and hands nothing over", func(ctx SpecContext) {
			on.shut(ctx, minute)
			message, locks := released(ctx)
			Expect(message).To(Equal("7"))
			Expect(locks).To(BeEmpty())
			Expect(on.Client.ZCard(ctx, "la").Val()).To(Equal(int64(2)), "it stays in line")
		})

		It("closes the guard if it is about to hand over, in a new term", func(ctx SpecContext) {
			on.mark(ctx, other, hour, 0)
			message, locks := released(ctx)
			Expect(message).To(Equal("7"))
			Expect(locks).To(BeEmpty())
			Expect(on.marker(ctx)).To(marked(on.id(ctx), hour, 0, BeNumerically(">", 0)))
		})

		It("hands nothing over if nobody can tell, and then what is gone is no loss either", func(ctx SpecContext) {
			on.Client.RPush(ctx, keyname.GuardMarker, "x")
			message, locks := released(ctx)
			Expect(message).To(Equal("7"))
			Expect(locks).To(BeEmpty())
			Expect(on.run(ctx, "release", "gone lg", "t")).To(Equal(none))
		})

		It("hands over while the guard is open, and lists what is gone", func(ctx SpecContext) {
			on.open(ctx)
			message, locks := released(ctx)
			Expect(message).To(MatchRegexp(`^7 granted \d{16} 0$`))
			Expect(locks).To(Equal(map[string]string{"a": "t7 1m"}))
			Expect(on.run(ctx, "release", "gone a", "t7", 2)).To(Equal(spec.List{int64(-1)}))
		})
	})

	Describe("release_each.lua", func() {
		release := func(ctx context.Context) (any, error) {
			on.Set(ctx, "a", "t")
			on.Set(ctx, "queued", "t")
			on.Set(ctx, "taken", "t0")
			on.Client.SAdd(ctx, "s", "x")
			on.Stand(ctx, "line", 17, "box/7 1 60000 0 t7", spec.FullLife, true)
			return on.run(ctx, "release_each", "a gone taken queued s  1 2 3 line 5", "t", "t", "t", "t", "t")
		}

		It("0, {1}, -1: deleted or gone, another's, left alone", func(ctx SpecContext) {
			on.shut(ctx, minute)
			for range 2 {
				Expect(release(ctx)).To(Equal(spec.List{none, none, spec.List{int64(1)}, int64(-1), spec.List{int64(1)}}))
				Expect(on.Keys(ctx)).To(ConsistOf("taken", "queued", "s", "line", keyname.GuardMarker))
			}
			Expect(on.run(ctx, "release_each", "gone also 1 2", "t", "t")).To(Equal(spec.List{none, none}))
		})

		It("0: gone, by the first use of a server, which closes the guard", func(ctx SpecContext) {
			Expect(on.run(ctx, "release_each", "gone also 1 2", "t", "t")).To(Equal(spec.List{none, none}))
			Expect(on.marker(ctx)).To(marked(on.id(ctx), hour, 0, BeNumerically(">", 0)))
		})

		It("{-1}: gone, while the guard is open", func(ctx SpecContext) {
			on.open(ctx)
			Expect(release(ctx)).To(Equal(spec.List{none, spec.List{int64(-1)}, spec.List{int64(1)}, int64(-1), spec.List{int64(1)}}))
		})
	})

	Describe("inspect.lua", func() {
		It("{-2, closed, id}: asked for an open guard only, nothing written", func(ctx SpecContext) {
			on.shut(ctx, minute)
			on.Set(ctx, "a", "t")
			before := on.Everything(ctx)
			for range 2 {
				Expect(on.run(ctx, "inspect", "a gone", 2, "1")).To(closure(ctx, minute))
			}
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		It("{-2, closed, id}: by the first use of a server, which closes the guard", func(ctx SpecContext) {
			Expect(on.run(ctx, "inspect", "a", 1, "1")).To(Equal(spec.List{int64(-2), int64(hour), on.id(ctx)}))
			Expect(on.Keys(ctx)).To(ConsistOf(keyname.GuardMarker))
		})

		It("{value, ms, …}: not asked for that, whatever the guard is", func(ctx SpecContext) {
			on.Set(ctx, "a", "t")
			for _, args := range [][]any{{1}, {1, "0"}} {
				Expect(on.run(ctx, "inspect", "a", args...)).To(HaveExactElements("t", left(minute), none, none, BeEmpty(), ""))
				Expect(on.Keys(ctx)).To(ConsistOf("a"), "nobody asked the guard")
			}
			on.shut(ctx, minute)
			Expect(on.run(ctx, "inspect", "a", 1)).To(HaveExactElements("t", left(minute), none, none, BeEmpty(), ""))
			on.open(ctx)
			Expect(on.run(ctx, "inspect", "a", 1, "1")).To(HaveExactElements("t", left(minute), none, none, BeEmpty(), ""))
		})
	})

	// large are times, tickets and what is left of ttls, which differ from run to run.
	large := regexp.MustCompile(`\d{5,}`)

	DescribeTable("while it is open, as without a guard:", func(ctx SpecContext, name, keys string, args ...any) {
		// result is what the script replies, what is heard of it, and what is left.
		result := func(run func(ctx context.Context, name, keys string, args ...any) (any, error)) string {
			GinkgoHelper()
			Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
			on.Set(ctx, "mine", "t m")
			on.Set(ctx, "more", "t")
			on.Set(ctx, "taken", "t0 m")
			on.Stand(ctx, "line", 17, "box/7 1 60000 0 t7", spec.FullLife, true)
			on.open(ctx)
			inbox := on.Client.Subscribe(ctx, spec.Inboxes+"box")
			defer inbox.Close()
			Expect(inbox.Receive(ctx)).NotTo(BeNil())
			reply, err := run(ctx, name, keys, args...)
			Expect(on.Client.Publish(ctx, spec.Inboxes+"box", "end").Err()).To(Succeed())
			var heard []string
			for len(heard) == 0 || heard[len(heard)-1] != "end" {
				message, err := inbox.ReceiveMessage(ctx)
				Expect(err).NotTo(HaveOccurred())
				heard = append(heard, message.Payload)
			}
			Expect(on.marker(ctx)).To(Equal(fmt.Sprint(on.id(ctx), " ", hour, " 0")))
			lines := on.Client.ZRangeWithScores(ctx, "line", 0, -1).Val()
			for i := range lines {
				lines[i].Score = max(lines[i].Score, 0) // that of a mark is a time
			}
			return large.ReplaceAllString(fmt.Sprint(reply, err, heard, on.locks(ctx), lines), "…")
		}
		Expect(result(on.run)).To(Equal(result(on.Run)))
	},
		func(name, keys string, args ...any) string { return fmt.Sprint(name, " of ", keys, ": ", args) },
		Entry(nil, "obtain", "free lf", "t", "m", hour),
		Entry(nil, "obtain", "mine lm", "t", "new", hour),
		Entry(nil, "obtain", "taken lt", "t", "", hour),
		Entry(nil, "obtain", "free line", "t", "", hour),
		Entry(nil, "obtain", "free also fence", "t", "", hour, 2, "1"),
		Entry(nil, "obtain", "free mine fence l1 l2", "t", "", hour, 2, "1"),
		Entry(nil, "obtain", "free line", "t", "", hour, 1, "0", "0", entry, 0, "1", 3),
		Entry(nil, "obtain", "free line", "t7", "", hour, 1, "0", "0", "box/7 1 60000 0 t7", 17, "1", 3),
		Entry(nil, "obtain", "free taken l1 line", "t", "", hour, 2, "0", "0", "box/1 2 60000 0 t", 0, "1", 3, 1),
		Entry(nil, "obtain", "free lf", "t", "", 0),
		Entry(nil, "obtain_each", "free mine taken also 1 2 3 line", "t", "", hour, "t", "m", hour, "t", "", hour, "t", "", hour),
		Entry(nil, "refresh", "mine more", "t", hour, "", "0", "kept"),
		Entry(nil, "refresh", "mine more", "t", hour, "new", "0", "kept"),
		Entry(nil, "refresh", "mine more", "t", 1000, "", "1", "kept"),
		Entry(nil, "refresh", "mine gone", "t", hour, "", "1", "kept"),
		Entry(nil, "refresh", "mine gone taken", "t", hour, "new", "0", "kept"),
		Entry(nil, "release", "mine line", "t"),
		Entry(nil, "release", "mine more gone taken", "t", 4),
		Entry(nil, "release", "mine fence line", "t", 1, "", "1"),
		Entry(nil, "release", "mine line", "t7", 1, "box/7 1 60000 0 t7"),
		Entry(nil, "release", "mine line", "t", 1, "box/7 1 60000 0 t7", "0", 99, 3, "1"),
		Entry(nil, "release_each", "mine taken gone more 1 2 3 line", "t", "t", "t", "t"),
		Entry(nil, "inspect", "mine taken gone line note l2 n2", 3),
		Entry(nil, "inspect", "mine taken gone line note l2 n2", 3, "1"),
	)
})
