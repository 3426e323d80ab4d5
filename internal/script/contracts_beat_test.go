package script_test

import (
	"context"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("The contract of", func(on *spec.Redis) {
	run, set, stand, listen := on.Run, on.Set, on.Stand, on.Listen
	const full, short = spec.FullLife, time.Second

	Describe("beat.lua", func() {
		// beat is a beat of "box" with a life of 3 s and an open subscription, which does not make the lines last.
		beat := func(ctx context.Context, keys string, left ...any) spec.List {
			GinkgoHelper()
			reply, err := run(ctx, "beat", keys, append([]any{"box", 3, "1", "0"}, left...)...)
			Expect(err).NotTo(HaveOccurred())
			Expect(reply).To(HaveLen(5))
			return reply.(spec.List)
		}
		const silent, missing, firsts = 2, 3, 4 // in a reply
		score := func(ctx context.Context, line, member string) float64 {
			return on.Client.ZScore(ctx, line, member).Val()
		}
		members := func(ctx context.Context, line string) []string { return on.Client.ZRange(ctx, line, 0, -1).Val() }

		It("renews the mark, with the life and the state of the subscription, and writes nothing else", func(ctx SpecContext) {
			stand(ctx, "la", 1, "box/1 1 60000 0 t", short, false)
			for open, life := range map[string]int64{"1": 3, "0": 60} {
				_, err := run(ctx, "beat", "a la", "box", life, open, "0")
				Expect(err).NotTo(HaveOccurred())
				want := spec.Mark(time.Now().Add(time.Duration(life)*time.Second), life, open == "1")
				Expect(score(ctx, "la", "~box")).To(BeNumerically("~", want, 4096*1000))
				Expect(int64(-score(ctx, "la", "~box"))%4096).To(Equal(int64(-want)%4096), "life, and whether it is open")
			}
			Expect(members(ctx, "la")).To(Equal([]string{"~box", "box/1 1 60000 0 t"}))
			Expect(on.Keys(ctx)).To(ConsistOf("la"))
		})

		It("renews a mark that has ended, but not long ago", func(ctx SpecContext) {
			stand(ctx, "la", 1, "box/1 1 60000 0 t", -4*time.Second, true)
			reply, err := run(ctx, "beat", "a la", "box", 3, "1", "0")
			Expect(err).NotTo(HaveOccurred())
			Expect(reply.(spec.List)[missing:]).To(Equal([]any{spec.List{}, spec.List{"1", int64(1), none}}))
		})

		It("{i, …}: also a mark that had ended long ago, and removes it", func(ctx SpecContext) {
			for _, line := range []string{"la", "lb"} {
				stand(ctx, line, 1, "other/1 2 60000 0 t", full, true)
				stand(ctx, line, 2, "box/1 2 60000 0 t", -6*time.Second, true)
			}
			stand(ctx, "lb", 6, "box/3 2 60000 0 t", full, true) // the mark has not ended there
			Expect(beat(ctx, "a b la lb")[missing]).To(Equal(spec.List{int64(1)}))
			Expect(members(ctx, "la")).NotTo(ContainElement("~box"))
			Expect(members(ctx, "lb")).To(ContainElement("~box"))
		})

		It("silent: 0 if there are more dead ones than one call removes", func(ctx SpecContext) {
			stand(ctx, "la", 20_000, "box/1 1 60000 0 t", full, true)
			fillLine(ctx, on.Client, "la", "dead", 10_001, dead)
			Expect(on.Client.ZAdd(ctx, "la", redis.Z{Score: 1e16, Member: "box/1 1 60000 0 t"}).Err()).To(Succeed())
			Expect(beat(ctx, "a la")[silent]).To(Equal(int64(0)))
			Expect(beat(ctx, "a la")[silent:]).To(Equal([]any{int64(-1), spec.List{}, spec.List{"1", int64(1), none}}))
		})

		It("makes the lines last for seven thirds of the life, but only if asked to, and never shorter", func(ctx SpecContext) {
			for _, line := range []string{"la", "lb"} {
				stand(ctx, line, 1, "box/1 2 60000 0 t", full, true)
			}
			on.Client.PExpire(ctx, "la", 5*time.Second)
			on.Client.PExpire(ctx, "lb", time.Minute)
			for prolong, want := range map[string]time.Duration{"0": 5 * time.Second, "1": 7 * time.Second} {
				on.Client.PExpire(ctx, "la", 5*time.Second)
				_, err := run(ctx, "beat", "a b la lb", "box", 3, "1", prolong)
				Expect(err).NotTo(HaveOccurred())
				Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", want, 900*time.Millisecond))
				Expect(on.Client.PTTL(ctx, "lb").Val()).To(BeNumerically("~", time.Minute, time.Second))
			}
		})

		It("time: in µs, every digit of it", func(ctx SpecContext) {
			before, err := on.Client.Time(ctx).Result()
			Expect(err).NotTo(HaveOccurred())
			at := beat(ctx, "a la")[0]
			after, err := on.Client.Time(ctx).Result()
			Expect(err).NotTo(HaveOccurred())
			Expect(at).To(And(BeNumerically(">=", before.UnixMicro()), BeNumerically("<=", after.UnixMicro())))
		})

		It("listeners: how many connections listen to the inbox", func(ctx SpecContext) {
			for want := range 3 {
				Expect(beat(ctx, "a la")[1]).To(Equal(int64(want)))
				listen(ctx, "box")
			}
			listen(ctx, "other")
			Expect(beat(ctx, "a la")[1]).To(Equal(int64(3)))
		})

		It("silent: when the first mark ends of another inbox that is first in a line; -1 for none", func(ctx SpecContext) {
			for i, line := range []string{"la", "lb", "lc"} {
				stand(ctx, line, 5, "box/1 1 60000 0 t", full, true)
				Expect(beat(ctx, "a la")[silent]).To(Equal(int64(-1)))
				stand(ctx, line, 6, "behind/1 1 60000 0 t", time.Millisecond, true)
				Expect(beat(ctx, "a "+line)[silent]).To(Equal(int64(-1)), "it is not first in line %d", i)
			}
			stand(ctx, "la", 1, "other/1 1 60000 0 t", 2*time.Second, true)
			stand(ctx, "lb", 1, "another/1 1 60000 0 t", short, true)
			stand(ctx, "lc", 1, "third/1 1 60000 0 t", full, true)
			Expect(beat(ctx, "a b c la lb lc")[silent]).To(BeNumerically("~", 950, 50))
		})

		It("{i, …}: in which lines the inbox has no mark, and it makes none there", func(ctx SpecContext) {
			stand(ctx, "lb", 1, "box/1 1 60000 0 t", full, true)
			stand(ctx, "lc", 1, "other/1 1 60000 0 t", full, true)
			Expect(beat(ctx, "a b c la lb lc")[missing]).To(Equal(spec.List{int64(1), int64(3)}))
			Expect(on.Keys(ctx)).To(ConsistOf("lb", "lc"))
			Expect(members(ctx, "lc")).To(Equal([]string{"~other", "other/1 1 60000 0 t"}))
			on.Client.ZRem(ctx, "lb", "~box")
			Expect(beat(ctx, "b lb")[missing]).To(Equal(spec.List{int64(1)}), "there is its entry")
			Expect(score(ctx, "lb", "~box")).To(BeZero())
		})

		It("{i, …}: none is missing if two beats come in one ms", func(ctx SpecContext) {
			stand(ctx, "la", 1, "box/1 1 60000 0 t", full, true)
			for range 20 {
				Expect(beat(ctx, "a la")[missing]).To(BeEmpty())
			}
		})

		It("{number, lines, ms, …}: the first ones whose keys are free, by now or soon", func(ctx SpecContext) {
			for i, line := range []string{"la", "lb", "lc", "ld", "le"} {
				entry := "box/7 5 60000 0 t7"
				if line == "ld" {
					entry = "box/9 1 60000 0 t9"
				}
				stand(ctx, line, float64(i), entry, full, true)
				stand(ctx, line, 17, "box/8 5 60000 0 t8", full, true)
			}
			on.Client.Set(ctx, "b", "other", 800*time.Millisecond)
			on.Client.Set(ctx, "c", "other", 1500*time.Millisecond)
			on.Client.Set(ctx, "e", "other", 0)
			Expect(beat(ctx, "b a c d e lb la lc ld le")[firsts]).To(HaveExactElements(
				"7", int64(2), BeNumerically("~", 750, 50), "9", int64(1), none))
		})

		It("{number, lines, ms, …}: 0 lines while another holds the keys, and none behind others", func(ctx SpecContext) {
			set(ctx, "a", "other")
			stand(ctx, "la", 1, "box/7 1 60000 0 t7", full, true)
			stand(ctx, "lb", 1, "other/1 1 60000 0 t1", full, true)
			stand(ctx, "lb", 2, "box/8 1 60000 0 t8", full, true)
			Expect(beat(ctx, "a b la lb")[firsts]).To(Equal(spec.List{"7", none, none}))
		})

		It("leaves out a line that is not a sorted set", func(ctx SpecContext) {
			set(ctx, "s", "x")
			stand(ctx, "lb", 1, "box/7 1 60000 0 t7", full, true)
			reply := beat(ctx, "a b s lb")
			Expect(reply[missing:]).To(Equal([]any{spec.List{}, spec.List{"7", int64(1), none}}))
		})

		It("removes the dead of other inboxes, and tells the next one, once", func(ctx SpecContext) {
			heard := listen(ctx, "other")
			for _, line := range []string{"la", "lb"} {
				stand(ctx, line, 1, "dead/1 2 60000 0 t1", -short, true)
				stand(ctx, line, 2, "dead/2 2 60000 0 t2", -short, true)
				stand(ctx, line, 3, "other/3 2 60000 0 t3", full, true)
				stand(ctx, line, 4, "other/4 2 60000 0 t4", full, true)
				stand(ctx, line, 5, "box/5 2 60000 0 t5", full, true)
			}
			beat(ctx, "a b la lb")
			Expect([]string{heard(), heard()}).To(Equal([]string{"3", ""}))
			Expect(members(ctx, "lb")).To(ConsistOf("~other", "~box", "other/3 2 60000 0 t3", "other/4 2 60000 0 t4", "box/5 2 60000 0 t5"))
			beat(ctx, "a b la lb")
			Expect(heard()).To(BeEmpty(), "none was removed")
		})

		It("tells none of its own inbox, because the reply names it", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			stand(ctx, "la", 1, "dead/1 1 60000 0 t1", -short, true)
			stand(ctx, "la", 2, "box/7 1 60000 0 t7", full, true)
			Expect(beat(ctx, "a la")[firsts]).To(Equal(spec.List{"7", int64(1), none}))
			Expect(heard()).To(BeEmpty())
		})

		It("passes over an inbox that nobody listens to any more, and tells the next one", func(ctx SpecContext) {
			heard := listen(ctx, "other")
			stand(ctx, "la", 1, "dead/1 1 60000 0 t1", -short, true)
			stand(ctx, "la", 2, "gone/2 1 60000 0 t2", full, true)
			stand(ctx, "la", 3, "gone/3 1 60000 0 t3", full, true)
			stand(ctx, "la", 4, "other/4 1 60000 0 t4", full, true)
			stand(ctx, "la", 5, "box/5 1 60000 0 t5", full, true)
			beat(ctx, "a la")
			Expect([]string{heard(), heard()}).To(Equal([]string{"4", ""}))
			Expect(members(ctx, "la")).To(ConsistOf("~other", "~box", "other/4 1 60000 0 t4", "box/5 1 60000 0 t5"))
		})

		It("removes those who have left where they are first, and serves the next one", func(ctx SpecContext) {
			heard := listen(ctx, "other")
			stand(ctx, "la", 1, "box/1 1 60000 0 t1", full, true)
			stand(ctx, "la", 2, "box/2 1 60000 0 t2", full, true)
			stand(ctx, "la", 3, "other/3 1 60000 0 t3", full, true)
			stand(ctx, "la", 4, "box/4 1 60000 0 t4", full, true)
			stand(ctx, "lb", 1, "box/1 1 60000 0 t1", full, true)
			stand(ctx, "lb", 2, "box/5 1 60000 0 t5", full, true)
			reply := beat(ctx, "a b la lb", "box/1", "box/2", "box/4")
			Expect(reply[firsts]).To(Equal(spec.List{"5", int64(1), none}))
			Expect([]string{heard(), heard()}).To(Equal([]string{"3", ""}))
			Expect(members(ctx, "la")).To(ConsistOf("~box", "~other", "other/3 1 60000 0 t3", "box/4 1 60000 0 t4"))
			Expect(members(ctx, "lb")).To(ConsistOf("~box", "box/5 1 60000 0 t5"))
		})

		It("deletes a line in which nobody stands", func(ctx SpecContext) {
			stand(ctx, "la", 1, "box/1 1 60000 0 t1", full, true)
			on.Client.ZAdd(ctx, "la", redis.Z{Score: spec.Mark(time.Now().Add(short), 3, true), Member: "~other"})
			Expect(beat(ctx, "a la", "box/1")[missing:]).To(Equal([]any{spec.List{}, spec.List{}}))
			Expect(on.Keys(ctx)).To(BeEmpty())
			Expect(beat(ctx, "a la")[missing]).To(Equal(spec.List{int64(1)}))
		})

		It("looks at many lines", func(ctx SpecContext) {
			keys, lines := "", ""
			for i := range 300 {
				keys += " k" + strconv.Itoa(i)
				lines += " l" + strconv.Itoa(i)
				stand(ctx, "l"+strconv.Itoa(i), 1, "box/1 300 60000 0 t1", short, true)
			}
			Expect(beat(ctx, keys+lines)[missing:]).To(Equal([]any{spec.List{}, spec.List{"1", int64(300), none}}))
		})
	})
})

var _ = spec.DescribeOn(spec.OnServer, "The contract of beat.lua", func(on *spec.Redis) {
	It("‹error›: of the first ZADD that Redis refuses", func(ctx SpecContext) {
		server := spec.StartServer()
		admin := spec.Connect(&redis.Options{Addr: server.Addr()})
		Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-zadd").Err()).To(Succeed())
		Expect(admin.ZAdd(ctx, "la", redis.Z{Score: spec.Mark(time.Now().Add(time.Second), 3, true), Member: "~box"}).Err()).To(Succeed())
		limited := spec.Connect(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "x"})
		err := limited.Eval(ctx, spec.Source("beat"), []string{"a", "la"}, "box", 3, "1", "0").Err()
		Expect(err).To(MatchError(Or(ContainSubstring("can't run this command"), ContainSubstring("has no permissions to run the"))))
	})

	It("listeners: -1 if an ACL lets nobody tell", func(ctx SpecContext) {
		server := spec.StartServer()
		admin := spec.Connect(&redis.Options{Addr: server.Addr()})
		Expect(admin.Do(ctx, "ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-pubsub").Err()).To(Succeed())
		limited := spec.Connect(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "x"})
		Expect(limited.Eval(ctx, spec.Source("beat"), []string{"a", "la"}, "box", 3, "1", "0").Val()).
			To(HaveExactElements(BeNumerically(">", 0), int64(-1), int64(-1), spec.List{int64(1)}, spec.List{}))
	})
})
