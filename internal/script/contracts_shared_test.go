package script_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

var _ = spec.DescribeOnRedis("The contract about shared keys of", func(on *spec.Redis) {
	run, set, stand, listen := on.Run, on.Set, on.Stand, on.Listen

	// house returns who holds a key by its house: ttls in minutes, limits and metadata.
	house := func(ctx context.Context, name string) (members []string) {
		for _, m := range on.Client.ZRangeWithScores(ctx, name, 0, -1).Val() {
			text := m.Member.(string)
			if m.Score > 0 {
				text += fmt.Sprintf(" %.0fm", time.Until(time.UnixMilli(int64(m.Score))).Minutes())
			} else if m.Score < -1<<52 {
				text += fmt.Sprintf(" %.0f", m.Score+1<<53)
			}
			members = append(members, text)
		}
		return members
	}
	lasts := func(ctx context.Context, key string, d time.Duration) {
		GinkgoHelper()
		Expect(on.Client.PTTL(ctx, key).Val()).To(BeNumerically("~", d, time.Second))
	}
	obtain := func(ctx context.Context, token, metadata string, ttl, limit int) any {
		GinkgoHelper()
		reply, err := run(ctx, "obtain", "a ha", token, metadata, ttl, fmt.Sprintf("1 1=%d", limit), "0")
		Expect(err).NotTo(HaveOccurred())
		return reply
	}

	Describe("obtain.lua", func() {
		It("1: the first holder makes the key and its house", func(ctx SpecContext) {
			Expect(obtain(ctx, "t", "m d", minute, 0)).To(Equal(int64(1)))
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal(keyname.SharedMark))
			Expect(house(ctx, "ha")).To(Equal([]string{"meta t m d", "t 1m"}))
			lasts(ctx, "a", time.Minute)
			lasts(ctx, "ha", time.Minute)
		})

		It("1: others join, and the key lasts as long as the last of them", func(ctx SpecContext) {
			obtain(ctx, "t1", "", hour, 0)
			Expect(obtain(ctx, "t2", "", minute, 3)).To(Equal(int64(1)))
			Expect(house(ctx, "ha")).To(Equal([]string{"limit t2 3", "t2 1m", "t1 60m"}))
			lasts(ctx, "a", time.Hour)
			lasts(ctx, "ha", time.Hour)
		})

		It("0: the limit of the caller, or that of a holder, is reached", func(ctx SpecContext) {
			obtain(ctx, "t1", "", minute, 2)
			obtain(ctx, "t2", "", minute, 0)
			Expect(obtain(ctx, "t3", "", minute, 0)).To(Equal(none), "t1 lets it have two")
			Expect(run(ctx, "release", "a ha", "t1", "1 1=2")).To(Equal(none))
			obtain(ctx, "t4", "", minute, 0)
			Expect(obtain(ctx, "t3", "", minute, 2)).To(Equal(none), "it wants two at most")
			Expect(run(ctx, "obtain", "a", "t3", "", minute, 1)).To(Equal(none), "it wants it alone")
			Expect(house(ctx, "ha")).To(ConsistOf("t2 1m", "t4 1m"))
		})

		It("0: an exclusive lock has it, and stays", func(ctx SpecContext) {
			set(ctx, "a", "other")
			Expect(obtain(ctx, "t", "", minute, 0)).To(Equal(none))
			Expect(on.Everything(ctx)).To(Equal(map[string]string{"a": "other 1m"}))
		})

		It("{0, i, …}: a replay finds its own hold, and changes no metadata", func(ctx SpecContext) {
			obtain(ctx, "t", "m", hour, 2)
			Expect(obtain(ctx, "t", "new", minute, 3)).To(Equal(spec.List{none, int64(1)}))
			Expect(house(ctx, "ha")).To(Equal([]string{"limit t 2", "meta t m", "t 60m"}), "the smaller limit stays")
		})

		It("{0, i, …}: who has it alone keeps it so; who shares it is refused alone", func(ctx SpecContext) {
			set(ctx, "a", "t m")
			Expect(obtain(ctx, "t", "", minute, 0)).To(Equal(spec.List{none, int64(1)}))
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("t m"))
			on.Client.FlushDB(ctx)
			obtain(ctx, "t", "", minute, 0)
			Expect(run(ctx, "obtain", "a", "t", "", minute, 1)).To(Equal(none))
		})

		It("all or none over a mix, with a fencing token", func(ctx SpecContext) {
			set(ctx, "c", "other")
			Expect(run(ctx, "obtain", "a b c ha fence", "t", "", minute, "3 1=2", "1")).To(Equal(none))
			Expect(on.Everything(ctx)).To(Equal(map[string]string{"c": "other 1m"}))
			on.Client.Del(ctx, "c")
			Expect(run(ctx, "obtain", "a b c ha fence", "t", "", minute, "3 1=2", "1")).To(HaveExactElements(BeNumerically(">", 1e15)))
			Expect(on.Client.MGet(ctx, "a", "b", "c").Val()).To(Equal(spec.List{keyname.SharedMark, "t", "t"}))
			Expect(on.Client.Exists(ctx, "fence").Val()).To(BeEquivalentTo(1))
		})

		It("a hold that has ended is none, whether or not it is still there", func(ctx SpecContext) {
			obtain(ctx, "t1", "m", hour, 2)
			on.Client.ZAdd(ctx, "ha", redis.Z{Score: float64(time.Now().Add(-time.Minute).UnixMilli()), Member: "ended"},
				redis.Z{Score: 1 - 1<<53, Member: "limit ended"})
			Expect(run(ctx, "pttl", "a ha", "ended", "1 1=2")).To(Equal(none))
			Expect(run(ctx, "refresh", "a ha", "ended", minute, "", "1", "", "1 1=2")).To(Equal(spec.List{int64(-1)}))
			Expect(obtain(ctx, "t2", "", minute, 2)).To(Equal(int64(1)))
			Expect(house(ctx, "ha")).NotTo(ContainElement(ContainSubstring("ended")))
		})

		It("what an operator has left of a house counts for nothing", func(ctx SpecContext) {
			obtain(ctx, "t1", "", hour, 2)
			on.Client.Del(ctx, "a")
			Expect(obtain(ctx, "t2", "", minute, 2)).To(Equal(int64(1)))
			Expect(house(ctx, "ha")).To(Equal([]string{"limit t2 2", "t2 1m"}))
			on.Client.Del(ctx, "ha")
			Expect(run(ctx, "pttl", "a ha", "t2", "1 1=2")).To(Equal(none))
			Expect(obtain(ctx, "t3", "", hour, 0)).To(Equal(int64(1)))
			lasts(ctx, "a", time.Hour)
			lasts(ctx, "ha", time.Hour)
		})

		It("WRONGTYPE: the house is of another type, nothing written", func(ctx SpecContext) {
			on.Client.HSet(ctx, "ha", "x", "y")
			_, err := run(ctx, "obtain", "a ha", "t", "", minute, "1 1=0", "0")
			Expect(err).To(MatchError(`WRONGTYPE "ha" holds a hash, not the holders of a lock`))
			on.Client.Set(ctx, "a", keyname.SharedMark, time.Minute)
			_, err = run(ctx, "obtain", "a ha", "t", "", minute, "1 1=0", "0")
			Expect(err).To(MatchError(ContainSubstring("WRONGTYPE")))
			Expect(on.Client.HGetAll(ctx, "ha").Val()).To(Equal(map[string]string{"x": "y"}))
		})
	})

	Describe("obtain.lua, in line", func() {
		queue := func(ctx context.Context, token, id string, limit, ticket int) any {
			GinkgoHelper()
			reply, err := run(ctx, "obtain", "a ha la", token, "", minute, fmt.Sprintf("1 1=%d", limit), "0", "0",
				fmt.Sprintf("%s 00 60000 0 %s", id, token), ticket, "0", 3)
			Expect(err).NotTo(HaveOccurred())
			return reply
		}
		ticket := func(reply any) int { return int(reply.(spec.List)[2].(int64)) }

		It("a waiter says how many holders it allows, until it is granted", func(ctx SpecContext) {
			set(ctx, "a", "other")
			reader := ticket(queue(ctx, "t1", "box/1", 0, 0))
			permit := ticket(queue(ctx, "t2", "box/2", 4, 0))
			Expect(on.Client.ZScore(ctx, "la", "=box/1").Val()).To(BeEquivalentTo(-reader))
			Expect(on.Client.ZScore(ctx, "la", "=box/2").Val()).To(BeEquivalentTo(-4))
			on.Client.Del(ctx, "a")
			Expect(queue(ctx, "t2", "box/2", 4, permit)).To(HaveExactElements(
				int64(-1), none, int64(permit), BeNumerically(">", 0), BeEmpty()), "a reader is ahead, who has another limit")
			Expect(queue(ctx, "t1", "box/1", 0, reader)).To(Equal(int64(1)))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(Equal([]string{"~box", "=box/2", "box/2 00 60000 0 t2"}))
		})

		It("those ahead with the same limit count as holders", func(ctx SpecContext) {
			set(ctx, "a", "other")
			one, two, three := ticket(queue(ctx, "t1", "box/1", 2, 0)), ticket(queue(ctx, "t2", "box/2", 2, 0)),
				ticket(queue(ctx, "t3", "box/3", 2, 0))
			on.Client.Del(ctx, "a")
			Expect(queue(ctx, "t3", "box/3", 2, three)).To(HaveLen(5), "there are two ahead")
			Expect(queue(ctx, "t2", "box/2", 2, two)).To(Equal(int64(1)))
			Expect(queue(ctx, "t3", "box/3", 2, three)).To(HaveLen(5))
			Expect(queue(ctx, "t1", "box/1", 2, one)).To(Equal(int64(1)))
		})

		It("a reader goes before readers who are ahead, and not before a writer", func(ctx SpecContext) {
			set(ctx, "a", "other")
			queue(ctx, "t1", "box/1", 0, 0)
			two := ticket(queue(ctx, "t2", "box/2", 0, 0))
			writer, err := run(ctx, "obtain", "a la", "w", "", minute, 1, "0", "0", "box/3 1 60000 0 w", 0, "0", 3)
			Expect(err).NotTo(HaveOccurred())
			four := ticket(queue(ctx, "t4", "box/4", 0, 0))
			on.Client.Del(ctx, "a")
			Expect(queue(ctx, "t4", "box/4", 0, four)).To(HaveLen(5))
			Expect(queue(ctx, "t2", "box/2", 0, two)).To(Equal(int64(1)))
			Expect(queue(ctx, "t4", "box/4", 0, four)).To(HaveLen(5))
			Expect(run(ctx, "release", "la", "", 0, "box/3 1 60000 0 w")).To(Equal(none))
			Expect(writer).To(HaveLen(5))
			Expect(queue(ctx, "t4", "box/4", 0, four)).To(Equal(int64(1)))
		})

		It("dead ones ahead are removed, with what they say", func(ctx SpecContext) {
			stand(ctx, "la", 17, "dead/1 1 60000 0 w", -time.Second, true)
			stand(ctx, "la", 18, "lost/2 00 60000 0 p", -time.Second, true)
			on.Client.ZAdd(ctx, "la", redis.Z{Score: -4, Member: "=lost/2"})
			Expect(queue(ctx, "t", "box/1", 0, 0)).To(Equal(int64(1)))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(BeEmpty(), "nor their marks, so that they hear of it")
		})

		It("a grant tells the next two who fit", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			tickets := map[string]int{}
			obtain(ctx, "other", "", minute, 1)
			set(ctx, "a", "other")
			for _, token := range []string{"1", "2", "3", "4"} {
				tickets[token] = ticket(queue(ctx, token, "box/"+token, 0, 0))
			}
			Expect(heard()).To(HavePrefix("1 marked"))
			on.Client.Del(ctx, "a") // its hold has ended
			Expect(queue(ctx, "1", "box/1", 0, tickets["1"])).To(Equal(int64(1)))
			Expect([]string{heard(), heard(), heard()}).To(Equal([]string{"2", "3", ""}))
		})

		It("a grant tells only those behind it", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			tickets := map[string]int{}
			set(ctx, "a", "other")
			for _, token := range []string{"1", "2", "3"} {
				tickets[token] = ticket(queue(ctx, token, "box/"+token, 0, 0))
			}
			Expect(heard()).To(HavePrefix("1 marked"))
			on.Client.Del(ctx, "a") // at one server of a quorum, whose others still refuse
			Expect(queue(ctx, "2", "box/2", 0, tickets["2"])).To(Equal(int64(1)))
			Expect([]string{heard(), heard()}).To(Equal([]string{"3", ""}))
		})
	})

	Describe("release.lua", func() {
		It("0: takes me out, and the key lasts until the last of the others ends", func(ctx SpecContext) {
			obtain(ctx, "t1", "m1", hour, 3)
			obtain(ctx, "t2", "m2", minute, 0)
			Expect(run(ctx, "release", "a ha", "t1", "1 1=3")).To(Equal(none))
			Expect(house(ctx, "ha")).To(ConsistOf("t2 1m", "meta t2 m2"))
			lasts(ctx, "a", time.Minute)
			lasts(ctx, "ha", time.Minute)
			Expect(run(ctx, "release", "a ha", "t2", "1 1=0")).To(Equal(none))
			Expect(on.Keys(ctx)).To(BeEmpty())
		})

		It("{i, …}: my hold is gone, or another has the key alone", func(ctx SpecContext) {
			obtain(ctx, "t1", "", minute, 0)
			Expect(run(ctx, "release", "a ha", "t2", "1 1=0")).To(Equal(spec.List{int64(-1)}))
			Expect(house(ctx, "ha")).To(Equal([]string{"t1 1m"}))
			on.Client.Del(ctx, "a", "ha")
			set(ctx, "a", "other")
			Expect(run(ctx, "release", "a ha", "t1", "1 1=0")).To(Equal(spec.List{int64(1)}))
		})

		It("wakes all from the front who can share the key, and no more", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			for i, who := range []string{"1 00", "2 00", "3 1", "4 00"} {
				stand(ctx, "la", float64(100+i), "box/"+who+" 60000 0 t", spec.FullLife, true)
			}
			for _, id := range []string{"1", "2", "4"} {
				on.Client.ZAdd(ctx, "la", redis.Z{Score: -1795306246131122, Member: "=box/" + id})
			}
			set(ctx, "a", "w")
			Expect(run(ctx, "release", "a la", "w")).To(Equal(none))
			Expect([]string{heard(), heard(), heard()}).To(Equal([]string{"1", "2", ""}))
		})

		It("wakes nobody who does not fit beside those who still hold the key, but says when the last of them ends", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			obtain(ctx, "t1", "", hour, 0)
			obtain(ctx, "t2", "", minute, 0)
			obtain(ctx, "t3", "", 900, 0)
			stand(ctx, "la", 100, "box/1 1 60000 0 w", spec.FullLife, true)
			Expect(run(ctx, "release", "a ha la", "t1", "1 1=0")).To(Equal(none))
			Expect(heard()).To(BeEmpty())
			Expect(run(ctx, "release", "a ha la", "t2", "1 1=0")).To(Equal(none))
			Expect(heard()).To(MatchRegexp(`^1 after [0-9]+$`))
		})

		It("hands the key over when the last of them releases it", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			obtain(ctx, "t1", "", hour, 0)
			stand(ctx, "la", 100, "box/1 1 60000 0 w", spec.FullLife, true)
			Expect(run(ctx, "release", "a ha la", "t1", "1 1=0")).To(Equal(none))
			Expect(heard()).To(HavePrefix("1 granted"))
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("w"))
			Expect(on.Client.Exists(ctx, "ha", "la").Val()).To(BeZero())
		})

		It("a waiter that leaves takes what it says with it, and those behind it may go", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			obtain(ctx, "t1", "", hour, 0)
			stand(ctx, "la", 100, "box/1 00 60000 0 r1", spec.FullLife, true)
			stand(ctx, "la", 101, "box/2 1 60000 0 w", spec.FullLife, true)
			stand(ctx, "la", 102, "box/3 00 60000 0 r2", spec.FullLife, true)
			on.Client.ZAdd(ctx, "la", redis.Z{Score: -1795306246131122, Member: "=box/1"}, redis.Z{Score: -1795306246131122, Member: "=box/3"})
			Expect(run(ctx, "release", "la", "w", 0, "box/2 1 60000 0 w")).To(Equal(none))
			Expect([]string{heard(), heard(), heard()}).To(Equal([]string{"1", "3", ""}))
			Expect(run(ctx, "release", "ha la", "r1", "0 1=0", "box/1 00 60000 0 r1")).To(Equal(none))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(Equal([]string{"~box", "=box/3", "box/3 00 60000 0 r2"}))
		})

		It("a waiter that steps back wakes a first one who did not fit beside it, and no other", func(ctx SpecContext) {
			heard := listen(ctx, "box")
			stand(ctx, "la", 100, "box/1 00 60000 0 r1", spec.FullLife, true)
			on.Client.ZAdd(ctx, "la", redis.Z{Score: -1795306246131122, Member: "=box/1"})
			obtain(ctx, "t2", "", hour, 0)
			Expect(run(ctx, "release", "a ha la", "t2", "1 1=0", "box/2 00 60000 0 t2", "0", "101", 3, "1")).To(Equal(none))
			Expect(heard()).To(BeEmpty())
			stand(ctx, "la", 99, "box/3 1 60000 0 w", spec.FullLife, true)
			obtain(ctx, "t2", "", hour, 0)
			Expect(run(ctx, "release", "a ha la", "t2", "1 1=0", "box/2 00 60000 0 t2", "0", "101", 3, "1")).To(Equal(none))
			Expect(heard()).To(HavePrefix("3"))
			on.Client.FlushDB(ctx)

			for limit, want := range map[int]string{2: "1", 3: ""} { // beside another holder
				stand(ctx, "la", 100, "box/1 00 60000 0 r1", spec.FullLife, true)
				on.Client.ZAdd(ctx, "la", redis.Z{Score: -float64(limit), Member: "=box/1"})
				obtain(ctx, "t1", "", hour, limit)
				obtain(ctx, "t2", "", hour, limit)
				Expect(run(ctx, "release", "a ha la", "t2", fmt.Sprint("1 1=", limit), "box/2 00 60000 0 t2", "0", "101", 3, "1")).
					To(Equal(none))
				Expect(heard()).To(Equal(want), "limit %d", limit)
				on.Client.FlushDB(ctx)
			}
		})

		It("a waiter that steps back says again how many holders it allows", func(ctx SpecContext) {
			Expect(run(ctx, "release", "ha hb la lb", "t", "0 1=0 2=4", "box/1 00 60000 0 t", "0", "1795306246131122", 3, "1")).
				To(Equal(none))
			Expect(on.Client.ZScore(ctx, "la", "=box/1").Val()).To(BeEquivalentTo(-1795306246131122))
			Expect(on.Client.ZScore(ctx, "lb", "=box/1").Val()).To(BeEquivalentTo(-4))
		})
	})

	Describe("refresh.lua", func() {
		refresh := func(ctx context.Context, token string, ttl int, metadata, prolongs string) any {
			GinkgoHelper()
			reply, err := run(ctx, "refresh", "a ha", token, ttl, metadata, prolongs, "", "1 1=2")
			Expect(err).NotTo(HaveOccurred())
			return reply
		}

		It("0: moves the end of my hold alone", func(ctx SpecContext) {
			obtain(ctx, "t1", "m", hour, 2)
			obtain(ctx, "t2", "", minute, 2)
			Expect(refresh(ctx, "t1", minute, "new", "0")).To(Equal(none))
			Expect(house(ctx, "ha")).To(ConsistOf("limit t1 2", "limit t2 2", "meta t1 new", "t1 1m", "t2 1m"))
			lasts(ctx, "a", time.Minute)
			Expect(refresh(ctx, "t2", hour, "", "1")).To(Equal(none))
			lasts(ctx, "a", time.Hour)
			Expect(refresh(ctx, "t2", minute, "", "1")).To(Equal(none))
			Expect(house(ctx, "ha")).To(ContainElement("t2 60m"), "it only prolongs")
		})

		It("{i, …}: my hold is gone", func(ctx SpecContext) {
			obtain(ctx, "t1", "", hour, 2)
			Expect(refresh(ctx, "t2", minute, "", "0")).To(Equal(spec.List{int64(-1)}))
			on.Client.Del(ctx, "ha")
			Expect(refresh(ctx, "t1", minute, "", "0")).To(Equal(spec.List{int64(-1)}))
		})

		It("an expiry that an operator has taken away comes back", func(ctx SpecContext) {
			obtain(ctx, "t1", "", hour, 2)
			on.Client.Persist(ctx, "a")
			on.Client.Persist(ctx, "ha")
			Expect(refresh(ctx, "t1", minute, "", "0")).To(Equal(none))
			lasts(ctx, "a", time.Minute)
			lasts(ctx, "ha", time.Minute)
		})
	})

	It("pttl.lua: ms, the least over my holds", func(ctx SpecContext) {
		obtain(ctx, "t", "", minute, 0)
		obtain(ctx, "other", "", hour, 0)
		set(ctx, "b", "t")
		on.Client.PExpire(ctx, "b", time.Hour)
		Expect(run(ctx, "pttl", "a b ha", "t", "2 1=0")).To(BeNumerically("~", minute, 1000))
		Expect(run(ctx, "pttl", "b a ha", "other", "2 2=0")).To(Equal(none))
	})

	It("fence.lua: 0 without a hold", func(ctx SpecContext) {
		obtain(ctx, "t", "", minute, 0)
		Expect(run(ctx, "fence", "a ha fence", "t", 0, "1 1=0")).To(BeNumerically(">", 1e15))
		Expect(run(ctx, "fence", "a ha fence", "other", 0, "1 1=0")).To(Equal(none))
	})

	It("inspect.lua: {count, token, ms, limit, metadata, token, …}", func(ctx SpecContext) {
		obtain(ctx, "t1", "m1", minute, 4)
		obtain(ctx, "t2", "", hour, 0)
		for first, order := range map[string][]string{"": {"t2", "t1"}, "t1": {"t1", "t2"}, "gone": {"t2", "t1"}} {
			reply, err := run(ctx, "inspect", "a b ha hb", "2 1=1 2=1", "0", first)
			Expect(err).NotTo(HaveOccurred())
			holders := reply.(spec.List)[0].(spec.List)
			Expect(holders).To(HaveLen(9))
			Expect([]any{holders[0], holders[1], holders[5]}).To(Equal([]any{int64(2), order[0], order[1]}))
			at := 1
			if order[1] == "t1" {
				at = 5
			}
			Expect(holders[at+1 : at+4]).To(HaveExactElements(BeNumerically("~", minute, 1000), int64(4), "m1"))
		}
	})

	It("blocker.lua: {i, value, ms, ahead, holders, waits}", func(ctx SpecContext) {
		obtain(ctx, "t1", "m1", hour, 2)
		obtain(ctx, "t2", "", minute, 0)
		for modes, token := range map[string]string{"1 1=1": "t3", "1 1=0": "t3", "1 1=2": "t3"} {
			Expect(run(ctx, "blocker", "a ha la na", token, modes, "0")).To(HaveExactElements(
				int64(1), "t1 m1", BeNumerically("~", hour, 1000), none, int64(2), ""))
		}
		Expect(run(ctx, "blocker", "a ha la na", "t1", "1 1=2", "0")).To(Equal(none), "it has the key")
		Expect(run(ctx, "blocker", "a ha la na", "t1", "1 1=1", "0")).To(HaveLen(6), "it shares the key, and wants it alone")
	})

	It("beat.lua: a key that the first waiter would share with its holders counts as free", func(ctx SpecContext) {
		obtain(ctx, "t1", "", hour, 0)
		stand(ctx, "la", 100, "box/1 00 60000 0 r1", spec.FullLife, true)
		Expect(run(ctx, "beat", "a la", "box", 3, "0", "0")).To(HaveExactElements(
			BeNumerically(">", 0), none, int64(-1), BeEmpty(), spec.List{"1", none, none}))
		on.Client.ZAdd(ctx, "la", redis.Z{Score: -1795306246131122, Member: "=box/1"})
		Expect(run(ctx, "beat", "a la", "box", 3, "0", "0")).To(HaveExactElements(
			BeNumerically(">", 0), none, int64(-1), BeEmpty(), spec.List{"1", int64(1), none}))
	})
})
