package script_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/spec"
)

// badCounters are entries for tables whose body puts them into a fence key.
var badCounters = []TableEntry{
	Entry("a word", "soon"), Entry("a fraction", "1.5"), Entry("an exponent", "1e3"), Entry("empty", ""),
	Entry("with a space", " 5"), Entry("2^53-1", "9007199254740991"), Entry("past 2^63", "99999999999999999999"),
}

// What the scripts do for locks on several places.
var _ = spec.DescribeOnRedis("The contract, for several places, of", func(on *spec.Redis) {
	run, set, everything, stand, listen := on.Run, on.Set, on.Everything, on.Stand, on.Listen
	// clock is the server's time in µs.
	clock := func(ctx context.Context) int64 {
		GinkgoHelper()
		now, err := on.Client.Time(ctx).Result()
		Expect(err).NotTo(HaveOccurred())
		return now.UnixMicro()
	}
	counter := func(ctx context.Context) int64 {
		GinkgoHelper()
		number, err := on.Client.Get(ctx, "fence").Int64()
		Expect(err).NotTo(HaveOccurred())
		return number
	}
	// many makes n keys that hold a value, and returns their names as run takes them.
	many := func(ctx context.Context, n int, value string) string {
		GinkgoHelper()
		var names strings.Builder
		pairs := make([]any, 0, 2*n)
		for i := range n {
			name := fmt.Sprintf("k%d ", i)
			names.WriteString(name)
			pairs = append(pairs, strings.TrimSpace(name), value)
		}
		Expect(on.Client.MSet(ctx, pairs...).Err()).To(Succeed())
		return names.String()
	}
	const second = 1_000_000 // in µs
	const foreign = "t0"     // a token that begins like mine

	Describe("fence.lua", func() {
		BeforeEach(func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t m d")
		})

		It("‹number›: minted by the server's clock, every digit of it, and the counter has no expiry", func(ctx SpecContext) {
			before := clock(ctx)
			fence, err := run(ctx, "fence", "a b fence", "t", "0")
			Expect(err).NotTo(HaveOccurred())
			Expect(fence).To(And(BeNumerically(">=", before), BeNumerically("<=", clock(ctx))))
			Expect(counter(ctx)).To(Equal(fence))
			Expect(everything(ctx)).To(Equal(map[string]string{
				"a": "t 1m", "b": "t m d 1m", "fence": strconv.FormatInt(fence.(int64), 10) + " 0m",
			}))
			Expect(on.Client.PTTL(ctx, "fence").Val()).To(Equal(time.Duration(-1)))
		})

		It("‹number›: minted one above a counter that is ahead of the clock, and again by a replay", func(ctx SpecContext) {
			const ahead = 9007199254740900
			Expect(on.Client.Set(ctx, "fence", ahead, 0).Err()).To(Succeed())
			Expect(run(ctx, "fence", "a b fence", "t", "0")).To(Equal(int64(ahead + 1)))
			Expect(run(ctx, "fence", "a b fence", "t", "0")).To(Equal(int64(ahead + 2)))
			Expect(counter(ctx)).To(Equal(int64(ahead + 2)))
		})

		It("‹number›: minted by the clock above a negative or a small counter", func(ctx SpecContext) {
			for _, small := range []int64{-5, 7} {
				before := clock(ctx)
				Expect(on.Client.Set(ctx, "fence", small, 0).Err()).To(Succeed())
				Expect(run(ctx, "fence", "a fence", "t", "0")).To(BeNumerically(">=", before))
			}
		})

		It("‹number›: raised to exactly that, also ahead of the clock, and not again by a replay", func(ctx SpecContext) {
			ahead := clock(ctx) + 3600*second
			for _, least := range []int64{17, 1795306246131123, ahead, ahead} {
				Expect(run(ctx, "fence", "a b fence", "t", least)).To(Equal(least))
				Expect(counter(ctx)).To(Equal(least))
			}
			Expect(on.Client.PTTL(ctx, "fence").Val()).To(Equal(time.Duration(-1)))
		})

		It("‹number›: what the counter is, if that is more, and nothing is written", func(ctx SpecContext) {
			Expect(on.Client.Set(ctx, "fence", 1795306246131124, time.Hour).Err()).To(Succeed())
			before := everything(ctx)
			Expect(run(ctx, "fence", "a b fence", "t", 1795306246131123)).To(Equal(int64(1795306246131124)))
			Expect(everything(ctx)).To(Equal(before))
		})

		It("‹number›: also where none of the lock keys is", func(ctx SpecContext) {
			before := clock(ctx)
			Expect(run(ctx, "fence", "fence", "t", "0")).To(BeNumerically(">=", before))
			Expect(run(ctx, "fence", "other", "t", 17)).To(Equal(int64(17)))
		})

		DescribeTable("0: nothing written, with one key, two or three", func(ctx SpecContext, spoil func(context.Context)) {
			Expect(on.Client.Set(ctx, "fence", "5", 0).Err()).To(Succeed())
			spoil(ctx)
			before := everything(ctx)
			for _, keys := range []string{"bad", "bad a", "a bad", "a bad b"} {
				Expect(run(ctx, "fence", keys+" fence", "t", "0")).To(Equal(none), keys)
				Expect(run(ctx, "fence", keys+" fence", "t", 1795306246131123)).To(Equal(none), keys)
			}
			Expect(everything(ctx)).To(Equal(before))
		},
			Entry("a key is gone", func(context.Context) {}),
			Entry("a key is another's", func(ctx context.Context) { set(ctx, "bad", "other") }),
			Entry("a key is another's, whose token begins like mine", func(ctx context.Context) { set(ctx, "bad", foreign) }),
			Entry("a key is another's, who has metadata", func(ctx context.Context) { set(ctx, "bad", foreign+" t") }),
			Entry("a key is another's, whose token is the beginning of mine", func(ctx context.Context) { set(ctx, "bad", "") }),
			Entry("a key is of another type", func(ctx context.Context) { on.Client.SAdd(ctx, "bad", "t") }),
			Entry("a key has expired", func(ctx context.Context) {
				Expect(on.Client.Set(ctx, "bad", "t", time.Millisecond).Err()).To(Succeed())
				time.Sleep(5 * time.Millisecond)
			}),
		)

		It("0 or ‹number›: the same for more keys than one command takes", func(ctx SpecContext) {
			keys := many(ctx, 4500, "t m")
			Expect(run(ctx, "fence", keys+"fence", "t", 17)).To(Equal(int64(17)))
			for _, key := range []string{"k0", "k1999", "k2000", "k4499"} {
				set(ctx, key, foreign)
				Expect(run(ctx, "fence", keys+"fence", "t", 18)).To(Equal(none), key)
				set(ctx, key, "t")
			}
			Expect(counter(ctx)).To(Equal(int64(17)))
			Expect(run(ctx, "fence", keys+"fence", "t", 18)).To(Equal(int64(18)))
		})

		It("WRONGTYPE: the fence key is not a string, nothing written", func(ctx SpecContext) {
			on.Client.SAdd(ctx, "fence", "5")
			before := everything(ctx)
			for _, least := range []int{0, 17} {
				_, err := run(ctx, "fence", "a fence", "t", least)
				Expect(err).To(MatchError(`WRONGTYPE fence key "fence" does not hold a counter`))
			}
			Expect(everything(ctx)).To(Equal(before))
		})

		DescribeTable("ERR: the fence key holds no integer below 2^53-1, nothing written", func(ctx SpecContext, bad string) {
			set(ctx, "fence", bad)
			before := everything(ctx)
			for _, least := range []int64{0, 17, 1795306246131123} {
				_, err := run(ctx, "fence", "a fence", "t", least)
				Expect(err).To(MatchError(`ERR fence key "fence" does not hold an integer below 2^53-1`))
			}
			Expect(everything(ctx)).To(Equal(before))
		}, badCounters)
	})

	Describe("obtain.lua, with a proposed fencing token", func() {
		// obtain passes a proposal that is so far from the server's clock.
		obtain := func(ctx context.Context, off int64, keys string, n int) (fence any, proposal, earliest, latest int64) {
			GinkgoHelper()
			before := clock(ctx)
			reply, err := run(ctx, "obtain", keys, "t", "", minute, n, before+off)
			Expect(err).NotTo(HaveOccurred())
			return reply.(spec.List)[0], before + off, before, clock(ctx)
		}

		DescribeTable("{fence}: exactly that, near the server's clock", func(ctx SpecContext, off int64) {
			fence, proposal, _, _ := obtain(ctx, off, "a b fence", 2)
			Expect(fence).To(Equal(proposal))
			Expect(counter(ctx)).To(Equal(proposal))
			Expect(on.Client.PTTL(ctx, "fence").Val()).To(Equal(time.Duration(-1)))
		}, Entry("behind", int64(-0.5*second)), Entry("the same", int64(0)), Entry("ahead", int64(0.9*second)))

		DescribeTable("{fence}: a second away at most", func(ctx SpecContext, off, want int64) {
			fence, _, earliest, latest := obtain(ctx, off, "a fence", 1)
			Expect(fence).To(And(BeNumerically(">=", earliest+want), BeNumerically("<=", latest+want)))
			Expect(counter(ctx)).To(Equal(fence))
		},
			Entry("far behind", int64(-3600*second), int64(-second)), Entry("behind", int64(-2*second), int64(-second)),
			Entry("ahead", int64(2*second), int64(second)), Entry("far ahead", int64(3600*second), int64(second)),
		)

		It("{fence}: one above the counter, if that is not below the proposal", func(ctx SpecContext) {
			at := clock(ctx) + 500_000
			for i, number := range []int64{at, at + 1} {
				Expect(on.Client.Set(ctx, "fence", number, 0).Err()).To(Succeed())
				Expect(run(ctx, "obtain", strconv.Itoa(i)+" fence", "t", "", minute, 1, at)).To(Equal(spec.List{number + 1}))
			}
			Expect(counter(ctx)).To(Equal(at + 2))
		})

		It("{fence, i, …}: a replay mints a larger one", func(ctx SpecContext) {
			at := clock(ctx) + 500_000
			Expect(run(ctx, "obtain", "a b fence", "t", "", minute, 2, at)).To(Equal(spec.List{at}))
			Expect(run(ctx, "obtain", "a b fence", "t", "", minute, 2, at)).To(Equal(spec.List{at + 1, int64(1), int64(2)}))
			Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
			Expect(run(ctx, "obtain", "a b fence", "t", "", minute, 2, at)).To(Equal(spec.List{at + 2, int64(2)}))
			Expect(counter(ctx)).To(Equal(at + 2))
		})

		It("{fence}: also for more keys than one command takes", func(ctx SpecContext) {
			keys := many(ctx, 4500, "x")
			Expect(on.Client.FlushDB(ctx).Err()).To(Succeed())
			fence, proposal, _, _ := obtain(ctx, 400_000, keys+"fence", 4500)
			Expect(fence).To(Equal(proposal))
			Expect(on.Client.DBSize(ctx).Val()).To(Equal(int64(4501)))
		})

		It("{fence}: also where others wait, whose turn it is not", func(ctx SpecContext) {
			at := clock(ctx) + 500_000
			stand(ctx, "la", 5, "box/1 1 60000 0 t1", spec.FullLife, true)
			reply, err := run(ctx, "obtain", "a fence la", "t", "", minute, 1, at, "0", "box/2 1 60000 5 fencet", 4, "1", 3)
			Expect(err).NotTo(HaveOccurred())
			Expect(reply).To(Equal(spec.List{at}))
		})

		It("0 and {-1, …}: a refused one mints nothing", func(ctx SpecContext) {
			set(ctx, "a", foreign)
			for _, left := range []string{"", "5"} {
				if left != "" {
					Expect(on.Client.Set(ctx, "fence", left, 0).Err()).To(Succeed())
				}
				Expect(run(ctx, "obtain", "b a fence", "t", "", minute, 2, clock(ctx))).To(Equal(none))
				Expect(run(ctx, "obtain", "a fence la", "t", "", minute, 1, clock(ctx), "0", "box/1 1 60000 0 t", 0, "0", 3)).To(HaveLen(5))
				Expect(on.Client.Get(ctx, "fence").Val()).To(Equal(left))
			}
		})

		It("WRONGTYPE: the fence key is not a string, nothing written", func(ctx SpecContext) {
			on.Client.SAdd(ctx, "fence", "5")
			_, err := run(ctx, "obtain", "a fence", "t", "", minute, 1, clock(ctx))
			Expect(err).To(MatchError(`WRONGTYPE fence key "fence" does not hold a counter`))
			Expect(on.Keys(ctx)).To(ConsistOf("fence"))
		})

		DescribeTable("ERR: the fence key holds no integer below 2^53-1, nothing written", func(ctx SpecContext, bad string) {
			set(ctx, "fence", bad)
			_, err := run(ctx, "obtain", "a fence", "t", "", minute, 1, clock(ctx))
			Expect(err).To(MatchError(`ERR fence key "fence" does not hold an integer below 2^53-1`))
			Expect(everything(ctx)).To(Equal(map[string]string{"fence": bad + " 1m"}))
		}, badCounters)
	})

	Describe("obtain.lua, with a proposed ticket", func() {
		const entry = "box/1 2 60000 0 t"
		BeforeEach(func(ctx SpecContext) {
			set(ctx, "a", foreign)
			set(ctx, "b", foreign)
		})
		// enter returns the ticket that a refused waiter is given, which must be the one in its lines.
		enter := func(ctx context.Context, ticket, proposal any) int64 {
			GinkgoHelper()
			reply, err := run(ctx, "obtain", "a b la lb", "t", "", minute, 2, "0", "0", entry, ticket, "0", 3, proposal)
			Expect(err).NotTo(HaveOccurred())
			Expect(reply).To(HaveLen(5))
			given := reply.(spec.List)[2].(int64)
			for _, line := range []string{"la", "lb"} {
				Expect(int64(on.Client.ZScore(ctx, line, entry).Val())).To(Equal(given), line)
			}
			return given
		}

		DescribeTable("{-1, ms, ticket, …}: exactly that, near the server's clock", func(ctx SpecContext, off int64) {
			at := clock(ctx) + off
			Expect(enter(ctx, 0, at)).To(Equal(at))
		}, Entry("behind", int64(-0.5*second)), Entry("ahead", int64(0.9*second)))

		DescribeTable("{-1, ms, ticket, …}: a second away at most", func(ctx SpecContext, off, want int64) {
			before := clock(ctx)
			ticket := enter(ctx, 0, before+off)
			Expect(ticket).To(And(BeNumerically(">=", before+want), BeNumerically("<=", clock(ctx)+want)))
		}, Entry("behind", int64(-3600*second), int64(-second)), Entry("ahead", int64(3600*second), int64(second)))

		It("{-1, ms, ticket, …}: behind the last one of all lines", func(ctx SpecContext) {
			at := clock(ctx)
			stand(ctx, "la", float64(at-7), "box/7 2 60000 0 t7", spec.FullLife, true)
			stand(ctx, "lb", float64(at+10), "box/8 2 60000 0 t8", spec.FullLife, true)
			Expect(enter(ctx, 0, at)).To(Equal(at + 11))
		})

		It("{-1, ms, ticket, …}: another one if it has that, also by a try whose reply was lost", func(ctx SpecContext) {
			at := clock(ctx)
			Expect(enter(ctx, 17, at)).To(Equal(int64(17)))
			Expect(enter(ctx, 0, at)).To(Equal(int64(17)))
		})

		It("{-1, ms, ticket, …}: the server's time without a proposal", func(ctx SpecContext) {
			before := clock(ctx)
			reply, err := run(ctx, "obtain", "a la", "t", "", minute, 1, "0", "0", entry, 0, "0", 3)
			Expect(err).NotTo(HaveOccurred())
			Expect(reply.(spec.List)[2]).To(And(BeNumerically(">=", before), BeNumerically("<=", clock(ctx))))
		})
	})

	Describe("release.lua, for a waiter that steps back", func() {
		const (
			mine   = "box/7 2 60000 0 t"
			ticket = 1795306246131123
		)
		back := func(ctx context.Context, keys string, n int, more ...any) (any, error) {
			args := []any{"t", n, mine, "0", ticket, 3, "1"}
			copy(args[4:], more)
			return run(ctx, "release", keys, args...)
		}
		// stands expects the waiter in a line, with a ticket, a life in s and a subscription that is open or not.
		stands := func(ctx context.Context, line string, ticket float64, life int64, open bool) {
			GinkgoHelper()
			Expect(on.Client.ZScore(ctx, line, mine).Val()).To(Equal(ticket))
			deadline := time.Now().Add(time.Duration(life) * time.Second)
			score := on.Client.ZScore(ctx, line, "~box").Val()
			Expect(score).To(BeNumerically("~", spec.Mark(deadline, life, open), 4096*1000))
			const bits = 4096
			Expect(int64(-score)%bits).To(Equal(int64(-spec.Mark(deadline, life, open))%bits), "life, and whether it is open")
		}

		It("0: every key deleted, a position in every line", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t m")
			heard := listen(ctx, "box")
			Expect(back(ctx, "a b la lb", 2)).To(Equal(none))
			Expect(on.Keys(ctx)).To(ConsistOf("la", "lb"))
			for _, line := range []string{"la", "lb"} {
				stands(ctx, line, ticket, 3, true)
				Expect(on.Client.PTTL(ctx, line).Val()).To(BeNumerically("~", 7*time.Second, time.Second))
			}
			Expect(heard()).To(MatchRegexp(`^7 marked \d{16} 1 2$`), "it had no mark there")
			Expect(heard()).To(BeEmpty(), "it does not serve itself")
		})

		It("0: its mark had ended long ago, so it is made anew, without the others of its inbox if some may have left", func(ctx SpecContext) {
			set(ctx, "a", "t")
			on.Stand(ctx, "la", 1, "other/1 1 60000 0 t", spec.FullLife, false)
			on.Stand(ctx, "la", 2, "box/2 1 60000 0 t", -6*time.Second, true)
			heard := listen(ctx, "box")
			Expect(run(ctx, "release", "a la", "t", 1, mine, "0", ticket, 3, 3)).To(Equal(none))
			Expect(heard()).To(MatchRegexp(`^7 marked \d{16} 1$`))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(ConsistOf("~other", "~box", "other/1 1 60000 0 t", mine))
		})

		It("0: the same for a single key, and with other values", func(ctx SpecContext) {
			set(ctx, "a", "t")
			Expect(back(ctx, "a la", 1, ticket+5, 60, "0")).To(Equal(none))
			Expect(on.Keys(ctx)).To(ConsistOf("la"))
			stands(ctx, "la", ticket+5, 60, false)
			Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", 140*time.Second, time.Second))
		})

		It("0: the same without a lock key, for a new ticket", func(ctx SpecContext) {
			stand(ctx, "la", ticket-3, mine, time.Second, false)
			Expect(back(ctx, "la", 0)).To(Equal(none))
			stands(ctx, "la", ticket, 3, true)
			Expect(on.Client.ZCard(ctx, "la").Val()).To(Equal(int64(2)))
		})

		It("{i, …}: another's, another type, gone, expired; the rest deleted, and a position all the same", func(ctx SpecContext) {
			set(ctx, "a", foreign)
			set(ctx, "b", "t m")
			on.Client.SAdd(ctx, "s", "x")
			Expect(on.Client.Set(ctx, "old", "t", time.Millisecond).Err()).To(Succeed())
			time.Sleep(5 * time.Millisecond)
			Expect(back(ctx, "a b s gone old la lb", 5)).To(Equal(spec.List{int64(1), int64(3), int64(-4), int64(-5)}))
			Expect(on.Keys(ctx)).To(ConsistOf("a", "s", "la", "lb"))
			stands(ctx, "la", ticket, 3, true)
		})

		It("a replay finds every key gone, and changes nothing in the lines", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t")
			Expect(back(ctx, "a b la lb", 2)).To(Equal(none))
			Expect(back(ctx, "a b la lb", 2)).To(Equal(spec.List{int64(-1), int64(-2)}))
			stands(ctx, "lb", ticket, 3, true)
			Expect(on.Client.ZCard(ctx, "la").Val()).To(Equal(int64(2)))
		})

		It("0: the same for more keys than one command takes", func(ctx SpecContext) {
			keys := many(ctx, 4500, "t")
			Expect(back(ctx, keys+strings.ReplaceAll(keys, "k", "l"), 4500)).To(Equal(none))
			Expect(on.Client.DBSize(ctx).Val()).To(Equal(int64(4500)))
			for _, line := range []string{"l0", "l2000", "l4499"} {
				stands(ctx, line, ticket, 3, true)
			}
		})

		It("makes a line last longer only if it would end before the mark, or soon after", func(ctx SpecContext) {
			stand(ctx, "la", ticket-3, mine, 2*time.Second, true)
			stand(ctx, "lb", ticket-3, mine, 2*time.Second, true)
			on.Client.PExpire(ctx, "la", 3*time.Second)
			on.Client.PExpire(ctx, "lb", 5*time.Second)
			Expect(back(ctx, "la lb", 0)).To(Equal(none))
			Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", 7*time.Second, time.Second))
			Expect(on.Client.PTTL(ctx, "lb").Val()).To(BeNumerically("~", 4500*time.Millisecond, 500*time.Millisecond))
		})

		It("does not shorten the life of a line that another needs for longer", func(ctx SpecContext) {
			on.Client.ZAdd(ctx, "la", redis.Z{Score: ticket + 1, Member: "other/8 1 60000 0 t8"},
				redis.Z{Score: spec.Mark(time.Now().Add(time.Minute), 60, true), Member: "~other"})
			on.Client.PExpire(ctx, "la", time.Minute)
			Expect(back(ctx, "la", 0)).To(Equal(none))
			Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", time.Minute, time.Second))
		})

		It("serves the first one of a line where a key was deleted", func(ctx SpecContext) {
			set(ctx, "a", "t")
			heard := listen(ctx, "box")
			stand(ctx, "la", ticket-1, "box/8 1 3600000 0 t8", spec.FullLife, true)
			Expect(back(ctx, "a la", 1)).To(Equal(none))
			Expect(heard()).To(HavePrefix("8 granted "))
			Expect(heard()).To(BeEmpty())
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("t8"))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(Equal([]string{"~box", mine}), "the one behind stays")
			Expect(on.Client.ZScore(ctx, "la", mine).Val()).To(Equal(float64(ticket)))
		})

		It("only wakes one that wants to be woken, as all waiters on several places do", func(ctx SpecContext) {
			set(ctx, "a", "t")
			heard := listen(ctx, "box")
			stand(ctx, "la", ticket-1, "box/8 0 3600000 0 t8", spec.FullLife, true)
			Expect(back(ctx, "a la", 1)).To(Equal(none))
			Expect([]string{heard(), heard()}).To(Equal([]string{"8", ""}))
			Expect(on.Keys(ctx)).To(ConsistOf("la"))
		})

		It("wakes nobody who is behind it", func(ctx SpecContext) {
			set(ctx, "a", "t")
			heard := listen(ctx, "box")
			stand(ctx, "la", ticket+1, "box/8 1 60000 0 t8", spec.FullLife, true)
			Expect(back(ctx, "a la", 1)).To(Equal(none))
			Expect(heard()).To(BeEmpty())
			Expect(on.Keys(ctx)).To(ConsistOf("la"))
		})

		It("wakes nobody in a line where no key was deleted and others were first", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", foreign)
			heard := listen(ctx, "box")
			stand(ctx, "la", ticket, mine, spec.FullLife, true)
			stand(ctx, "lb", ticket-1, "box/8 1 60000 0 t8", spec.FullLife, true)
			Expect(back(ctx, "a b la lb", 2)).To(Equal(spec.List{int64(2)}))
			Expect(heard()).To(BeEmpty())
		})

		It("wakes the one who is first where it was, with an earlier ticket", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			stand(ctx, "la", ticket-2, mine, spec.FullLife, true)
			stand(ctx, "la", ticket-1, "box/8 0 60000 0 t8", spec.FullLife, true)
			Expect(back(ctx, "la", 0)).To(Equal(none))
			Expect([]string{heard(), heard()}).To(Equal([]string{"8", ""}))
		})

		It("wakes the one who is first where dead ones were", func(ctx SpecContext) {
			set(ctx, "a", foreign)
			heard := listen(ctx, "box")
			stand(ctx, "la", ticket-3, "dead/9 0 60000 0 t9", -time.Second, true)
			stand(ctx, "la", ticket-1, "box/8 0 60000 0 t8", spec.FullLife, true)
			Expect(back(ctx, "a la", 1)).To(Equal(spec.List{int64(1)}))
			Expect([]string{heard(), heard()}).To(Equal([]string{"8", ""}))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(Equal([]string{"~box", "box/8 0 60000 0 t8", mine}))
		})

		It("tells its inbox if that had no mark in one of the lines, and only then", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			stand(ctx, "la", ticket-1, "box/8 0 60000 0 t8", spec.FullLife, true)
			Expect(back(ctx, "la", 0)).To(Equal(none))
			Expect(heard()).To(BeEmpty())
			Expect(back(ctx, "la lb", 0)).To(Equal(none))
			Expect(heard()).To(MatchRegexp(`^7 marked \d{16} 2$`))
			Expect(heard()).To(BeEmpty())
		})

		It("leaves if it has no ticket to step back with", func(ctx SpecContext) {
			set(ctx, "a", "t")
			stand(ctx, "la", ticket, mine, spec.FullLife, true)
			Expect(back(ctx, "a la", 1, "", "3", "1")).To(Equal(none))
			Expect(on.Keys(ctx)).To(BeEmpty())
		})
	})
})
