package script_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// Times in ms, as the scripts take them, and a reply.
const (
	minute, hour = 60_000, 3_600_000
	none         = int64(0)
)

var _ = spec.DescribeOnRedis("The contract of", func(on *spec.Redis) {
	run, set, everything, stand, listen := on.Run, on.Set, on.Everything, on.Stand, on.Listen

	Describe("obtain.lua", func() {
		It("1: granted, all newly taken", func(ctx SpecContext) {
			Expect(run(ctx, "obtain", "a b", "t", "m d", minute, 2, "0")).To(Equal(int64(1)))
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t m d 1m", "b": "t m d 1m"}))
		})

		It("1: granted, by a call that leaves out what one key without a fencing token needs not say", func(ctx SpecContext) {
			Expect(run(ctx, "obtain", "a la", "t", "m", minute)).To(Equal(int64(1)))
			Expect(run(ctx, "obtain", "a la", "t", "m", minute)).To(Equal(spec.List{int64(0), int64(1)}))
			Expect(run(ctx, "obtain", "a la", "other", "", minute)).To(Equal(none))
			Expect(run(ctx, "obtain", "b", "t", "m", minute)).To(Equal(int64(1)), "its line is left out while the slot is moving")
			stand(ctx, "lc", 17, "box/7 1 60000 0 t7", 2*time.Second, true)
			Expect(run(ctx, "obtain", "c lc", "t", "", minute)).To(Equal(none))
			_, err := run(ctx, "obtain", "d ld", "t", "", "0")
			Expect(err).To(MatchError(ContainSubstring("not a whole number")))
			Expect(run(ctx, "release", "a la", "t")).To(Equal(none))
			Expect(run(ctx, "release", "b", "other")).To(Equal(spec.List{int64(1)}))
			Expect(everything(ctx)).To(HaveKeyWithValue("b", "t m 1m"))
			Expect(everything(ctx)).NotTo(HaveKey("a"))
		})

		It("{0, i, …}: granted, some mine before, which keep their metadata", func(ctx SpecContext) {
			set(ctx, "b", "t old")
			set(ctx, "d", "t")
			Expect(run(ctx, "obtain", "a b c d", "t", "m", hour, 4, "0")).To(Equal(spec.List{int64(0), int64(2), int64(4)}))
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t m 60m", "b": "t old 60m", "c": "t m 60m", "d": "t 60m"}))
		})

		It("{0, i, …}: or get the new one", func(ctx SpecContext) {
			for metadata, value := range map[string]string{"": "t 60m", "m": "t m 60m"} {
				set(ctx, "b", "t old")
				set(ctx, "d", "t")
				Expect(run(ctx, "obtain", "b d", "t", metadata, hour, 2, "0", "1")).To(Equal(spec.List{int64(0), int64(1), int64(2)}))
				Expect(everything(ctx)).To(Equal(map[string]string{"b": value, "d": value}))
			}
		})

		It("{0, i, …}: what was mine keeps a longer ttl, and gets the ttl if it had no expiry", func(ctx SpecContext) {
			for _, value := range []string{"t new", "t old"} {
				for writes, want := range map[string]string{"0": value, "1": "t new"} {
					on.Client.Set(ctx, "long", value, time.Hour)
					on.Client.Set(ctx, "endless", value, 0)
					Expect(run(ctx, "obtain", "long endless", "t", "new", minute, 2, "0", writes)).
						To(Equal(spec.List{int64(0), int64(1), int64(2)}))
					Expect(everything(ctx)).To(Equal(map[string]string{"long": want + " 60m", "endless": want + " 1m"}))
				}
			}
		})

		It("a replay is granted and changes nothing", func(ctx SpecContext) {
			Expect(run(ctx, "obtain", "a b", "t", "m", minute, 2, "0")).To(Equal(int64(1)))
			Expect(run(ctx, "obtain", "a b", "t", "m", minute, 2, "0")).To(Equal(spec.List{int64(0), int64(1), int64(2)}))
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t m 1m", "b": "t m 1m"}))
		})

		It("{fence}: with a fencing token, of which every digit is kept", func(ctx SpecContext) {
			reply, err := run(ctx, "obtain", "a fence", "t", "", minute, 1, "1")
			Expect(err).NotTo(HaveOccurred())
			Expect(reply).To(HaveLen(1))
			fence := reply.(spec.List)[0].(int64)
			Expect(fence).To(BeNumerically("~", time.Now().UnixMicro(), time.Hour.Microseconds()))
			Expect(on.Client.Get(ctx, "fence").Val()).To(Equal(strconv.FormatInt(fence, 10)))
		})

		It("a negative or small counter is also an integer", func(ctx SpecContext) {
			on.Client.Set(ctx, "fence", "-5", time.Minute)
			Expect(run(ctx, "obtain", "a fence", "t", "", minute, 1, "1")).To(HaveExactElements(BeNumerically(">", 1e15)))
			Expect(on.Client.PTTL(ctx, "fence").Val()).To(Equal(time.Duration(-1)), "the counter has no expiry")
		})

		It("0: refused, nothing written", func(ctx SpecContext) {
			set(ctx, "b", "t0 m")
			before := everything(ctx)
			Expect(run(ctx, "obtain", "a b c", "t", "m", hour, 3, "0")).To(Equal(int64(0)))
			Expect(everything(ctx)).To(Equal(before))
		})

		It("WRONGTYPE: also when another key would have been refused, nothing written", func(ctx SpecContext) {
			set(ctx, "b", "other")
			on.Client.SAdd(ctx, "s", "x")
			before := everything(ctx)
			_, err := run(ctx, "obtain", "a b s", "t", "", hour, 3, "0")
			Expect(err).To(MatchError(`WRONGTYPE key "s" holds a set, not a lock`))
			_, err = run(ctx, "obtain", "a s", "t", "", hour, 1, "1")
			Expect(err).To(MatchError(`WRONGTYPE fence key "s" does not hold a counter`))
			Expect(everything(ctx)).To(Equal(before))
		})

		DescribeTable("ERR: a ttl that is not a whole number above 0, nothing written", func(ctx SpecContext, ttl any) {
			_, err := run(ctx, "obtain", "a", "t", "", ttl, 1, "0")
			Expect(err).To(MatchError(ContainSubstring("ERR ttl")))
			Expect(on.Keys(ctx)).To(BeEmpty())
		}, badTTLs)
	})

	Describe("obtain.lua, in line", func() {
		It("{-1, ms, ticket, time, {i, …}}: a position, and then the same position", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			began := time.Now().UnixMicro()
			first, err := run(ctx, "obtain", "a la", "t", "", minute, 1, "0", "0", "box/1 1 60000 0 t", 0, "0", 3)
			Expect(err).NotTo(HaveOccurred())
			near := BeNumerically("~", began, 1e6)
			soon := BeNumerically("~", minute, 1000) // the key is free then
			Expect(first).To(HaveExactElements(int64(-1), soon, near, near, spec.List{int64(1)}))
			ticket := first.(spec.List)[2]
			again, err := run(ctx, "obtain", "a la", "t", "", minute, 1, "0", "0", "box/1 1 60000 0 t", ticket, "1", 3)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(HaveExactElements(int64(-1), soon, ticket, near, BeEmpty()))
			Expect(on.Client.ZScore(ctx, "la", "~box").Val()).To(BeNumerically("~", spec.Mark(time.Now().Add(spec.FullLife), 3, true), 4096*1000))
			Expect(int(-on.Client.ZScore(ctx, "la", "~box").Val())%2).To(Equal(1), "open")
		})

		state := 1
		BeforeEach(func() { state = 1 })
		try := func(ctx context.Context, keys string, n int, entry string, ticket int64) spec.List {
			GinkgoHelper()
			reply, err := run(ctx, "obtain", keys, "t", "", minute, n, "0", "0", entry, ticket, state, 3)
			Expect(err).NotTo(HaveOccurred())
			Expect(reply).To(HaveLen(5))
			return reply.(spec.List)
		}

		It("ms: when the first and the last key that others hold are free; 0 if nobody knows", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			on.Client.Set(ctx, "b", "t0", time.Hour)
			on.Client.Set(ctx, "c", "t0", 0)
			Expect(try(ctx, "a b la lb", 2, "box/1 2 60000 0 t", 0)[1]).To(BeNumerically("~", hour, 1000))
			Expect(try(ctx, "c lc", 1, "box/2 1 60000 0 t", 0)[1]).To(Equal(none))
			Expect(try(ctx, "b a lb la", 2, "box/3 2 60000 0 t", 0)[1]).To(Equal(none))
			stand(ctx, "ld", 17, "other/1 1 60000 0 t7", spec.FullLife, true)
			Expect(try(ctx, "d ld", 1, "box/4 1 60000 0 t", 0)[1]).To(Equal(none))
		})

		It("i: its inbox had no mark in the line of KEYS[i], and then the inbox is told", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			heard := listen(ctx, "box")
			stand(ctx, "la", 16, "other/1 1 60000 0 t7", spec.FullLife, true)
			marked := func(number string, reply spec.List, made ...any) {
				GinkgoHelper()
				Expect(reply[4]).To(Equal(made))
				words := append([]any{number, "marked", reply[3]}, made...)
				Expect(heard()).To(Equal(strings.TrimSpace(fmt.Sprintln(words...))))
				Expect(heard()).To(BeEmpty())
			}
			marked("1", try(ctx, "a la", 1, "box/1 1 60000 0 t", 17), int64(1))
			Expect(on.Client.ZScore(ctx, "la", "box/1 1 60000 0 t").Val()).To(Equal(17.))
			marked("2", try(ctx, "a b la lb", 2, "box/2 2 60000 0 t", 0), int64(2))
			set(ctx, "d", "t0")
			marked("3", try(ctx, "c d lc ld", 2, "box/3 2 60000 0 t", 1), int64(1), int64(2))
			on.Client.ZRem(ctx, "la", "~box")
			marked("1", try(ctx, "a la", 1, "box/1 1 60000 0 t", 17), int64(1))
			on.Client.ZRem(ctx, "lb", "~box")
			on.Client.ZRem(ctx, "la", "box/2 2 60000 0 t")
			marked("2", try(ctx, "a b la lb", 2, "box/2 2 60000 0 t", 0), int64(2)) // as if the reply had been lost
		})

		It("i: not if there is a mark, although its own entry was missing, and then nobody is told", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			heard := listen(ctx, "box")
			stand(ctx, "la", 17, "box/1 1 60000 0 t", spec.FullLife, true)
			Expect(try(ctx, "a la", 1, "box/2 1 60000 0 t", 18)[4]).To(BeEmpty())
			Expect(try(ctx, "a la", 1, "box/3 1 60000 0 t", 0)[4]).To(BeEmpty())
			Expect(heard()).To(BeEmpty())
			Expect(on.Client.ZCard(ctx, "la").Val()).To(Equal(int64(4)))
		})

		It("i: before it makes a mark, it removes the waiters of its inbox from that line, if some may have left", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			const n = 4500
			var entries []redis.Z
			for i := range n {
				entries = append(entries, redis.Z{Score: float64(i + 1), Member: fmt.Sprint([]string{"other/", "box/"}[i%2], i, " 1 60000 0 t")})
			}
			on.Client.ZAdd(ctx, "la", entries...)
			stand(ctx, "la", n+1, "other/x 1 60000 0 t", spec.FullLife, true)
			Expect(try(ctx, "a la", 1, "box/2 1 60000 0 t", 0)[4]).To(Equal(spec.List{int64(1)}))
			Expect(on.Client.ZCard(ctx, "la").Val()).To(Equal(int64(n+1+1+2)), "nobody may have left")
			on.Client.ZRem(ctx, "la", "~box")
			state = 3
			Expect(try(ctx, "a la", 1, "box/2 1 60000 0 t", 0)[4]).To(Equal(spec.List{int64(1)}))
			Expect(on.Client.ZCard(ctx, "la").Val()).To(Equal(int64(n/2 + 1 + 1 + 2)))
		})

		It("i: a mark that had ended long ago, and removes the other waiters of its inbox from that line", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			stand(ctx, "la", 1, "other/1 1 60000 0 t", spec.FullLife, true)
			stand(ctx, "la", 2, "box/1 1 60000 0 t", -6*time.Second, true)
			state = 2
			Expect(try(ctx, "a la", 1, "box/2 1 60000 0 t", 0)[4]).To(Equal(spec.List{int64(1)}))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(ConsistOf("~other", "~box", "other/1 1 60000 0 t", "box/2 1 60000 0 t"))
		})

		It("makes a line last for seven thirds of the life, unless it lasts longer", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			try(ctx, "a la", 1, "box/1 1 60000 0 t", 0)
			Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", 7*time.Second, time.Second))
			on.Client.PExpire(ctx, "la", time.Minute)
			try(ctx, "a la", 1, "other/1 1 60000 0 t", 0)
			Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", time.Minute, time.Second))
		})

		It("makes a line last longer if its mark does", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			stand(ctx, "la", 1, "box/1 1 60000 0 t", time.Second, true)
			on.Client.PExpire(ctx, "la", 5*time.Second)
			try(ctx, "a la", 1, "box/2 1 60000 0 t", 0)
			Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", 5*time.Second, time.Second))
			Expect(run(ctx, "obtain", "a la", "t", "", minute, 1, "0", "0", "box/2 1 60000 0 t", 0, 1, 30)).To(HaveLen(5))
			Expect(on.Client.PTTL(ctx, "la").Val()).To(BeNumerically("~", 70*time.Second, time.Second))
		})

		It("writes nothing if one of its lines is of another type", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			set(ctx, "lb", "x")
			stand(ctx, "la", 1, "other/1 1 60000 0 t7", spec.FullLife, true)
			stand(ctx, "la", 2, "box/1 2 60000 0 t", spec.FullLife, true)
			on.Client.ZRem(ctx, "la", "~box")
			_, err := run(ctx, "obtain", "a b la lb", "t", "", minute, 2, "0", "0", "box/2 2 60000 0 t", 17, 3, 3)
			Expect(err).To(MatchError(ContainSubstring("WRONGTYPE")))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(Equal([]string{"~other", "other/1 1 60000 0 t7", "box/1 2 60000 0 t"}))
		})

		It("removes a dead waiter with the mark of its inbox, and tells the next one", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			heard := listen(ctx, "other")
			stand(ctx, "la", 1, "dead/1 1 60000 0 t7", -time.Second, true)
			stand(ctx, "la", 2, "other/2 1 60000 0 t7", spec.FullLife, true)
			try(ctx, "a la", 1, "box/1 1 60000 0 t", 0)
			Expect(heard()).To(Equal("2"))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(ConsistOf("~box", "~other", "other/2 1 60000 0 t7", "box/1 1 60000 0 t"))
		})

		It("deletes a line in which nobody stands any more", func(ctx SpecContext) {
			stand(ctx, "la", 1, "dead/1 1 60000 0 t7", -time.Second, true)
			on.Client.ZAdd(ctx, "la", redis.Z{Score: spec.Mark(time.Now().Add(time.Second), 3, true), Member: "~other"})
			Expect(run(ctx, "obtain", "a la", "t", "", minute, 1, "0", "0", "box/1 1 60000 0 t", 0, "0", 3)).To(Equal(int64(1)))
			Expect(on.Keys(ctx)).To(ConsistOf("a"))
		})
	})

	Describe("release.lua, with a line", func() {
		It("leaves a line alone that is not a sorted set", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "s", "x")
			Expect(run(ctx, "release", "a s", "t")).To(Equal(none))
			Expect(on.Keys(ctx)).To(ConsistOf("s"))
		})

		It("hands over: value, ttl, fencing token, out of the line, one message", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t")
			set(ctx, "fence", "5")
			heard := listen(ctx, "box")
			for _, line := range []string{"la", "lb"} {
				stand(ctx, line, 1, "box/7 2 3600000 5 fencet7 m d", spec.FullLife, true)
			}
			Expect(run(ctx, "release", "a b fence la lb", "t", 2, "", "1")).To(Equal(none))
			fence := on.Client.Get(ctx, "fence").Val()
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t7 m d 60m", "b": "t7 m d 60m", "fence": fence + " 0m"}))
			Expect(heard()).To(MatchRegexp(`^7 granted \d{16} ` + fence + `$`))
			Expect(heard()).To(BeEmpty())
		})

		DescribeTable("only wakes", func(ctx SpecContext, entry string, left time.Duration, open bool) {
			set(ctx, "a", "t")
			heard := listen(ctx, "box")
			stand(ctx, "la", 1, entry, left, open)
			Expect(run(ctx, "release", "a la", "t", 1)).To(Equal(none))
			Expect(on.Keys(ctx)).To(ConsistOf("la"))
			Expect(heard()).To(Equal("7"))
		},
			Entry("one that must not be handed anything", "box/7 0 60000 0 t7", spec.FullLife, true),
			Entry("one that wants more", "box/7 2 60000 0 t7", spec.FullLife, true),
			Entry("one with a fence key", "box/7 1 60000 5 fencet7", spec.FullLife, true),
			Entry("one that is late", "box/7 1 60000 0 t7", 900*time.Millisecond, true),
			Entry("one whose subscription is not open", "box/7 1 60000 0 t7", spec.FullLife, false),
		)

		It("counts a line once, however often it is named", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "another")
			heard := listen(ctx, "box")
			for _, line := range []string{"la", "lb"} {
				stand(ctx, line, 1, "box/7 2 60000 0 t7", spec.FullLife, true)
			}
			_, err := run(ctx, "release", "a a la la", "t", 2)
			Expect(err).NotTo(HaveOccurred())
			Expect(heard()).To(Equal("7"))
			Expect(on.Client.Get(ctx, "b").Val()).To(Equal("another"))
		})

		It("hands nothing to one whose channel only a pattern covers, and mints nothing", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "fence", "5")
			all := on.Client.PSubscribe(ctx, spec.Inboxes+"*")
			DeferCleanup(all.Close)
			Expect(all.Receive(ctx)).NotTo(BeNil())
			stand(ctx, "la", 1, "gone/1 1 60000 5 fencet1", spec.FullLife, true)
			Expect(run(ctx, "release", "a fence la", "t", 1, "", "1")).To(Equal(none))
			message, err := all.ReceiveMessage(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(message.Payload).To(Equal("1"))
			Expect(on.Keys(ctx)).To(ConsistOf("fence", "la"))
			Expect(on.Client.Get(ctx, "fence").Val()).To(Equal("5"))
		})

		It("passes over a waiter that nobody listens for, and all others of its inbox", func(ctx SpecContext) {
			set(ctx, "a", "t")
			heard := listen(ctx, "box")
			stand(ctx, "la", 1, "gone/1 1 60000 0 t1", spec.FullLife, true)
			stand(ctx, "la", 2, "gone/2 1 60000 0 t2", spec.FullLife, true)
			stand(ctx, "la", 3, "box/7 1 60000 0 t7", spec.FullLife, true)
			stand(ctx, "la", 4, "silent/3 1 60000 0 t3", spec.FullLife, false)
			Expect(run(ctx, "release", "a la", "t", 1)).To(Equal(none))
			Expect(heard()).To(HavePrefix("7 granted "))
			Expect(on.Client.Get(ctx, "a").Val()).To(Equal("t7"))
			Expect(on.Client.ZRange(ctx, "la", 0, -1).Val()).To(ConsistOf("~box", "~silent", "silent/3 1 60000 0 t3"))
		})

		It("leaves waiters whose inbox is gone in line if nobody else is in it", func(ctx SpecContext) {
			set(ctx, "a", "t")
			for i, id := range []string{"gone/2", "gone/1", "gone/3"} {
				stand(ctx, "la", float64(i+1), id+" 1 60000 0 t1", spec.FullLife, true)
			}
			before := on.Client.ZRangeWithScores(ctx, "la", 0, -1).Val()
			Expect(run(ctx, "release", "a la", "t", 1)).To(Equal(none))
			Expect(on.Keys(ctx)).To(ConsistOf("la"))
			Expect(on.Client.ZRangeWithScores(ctx, "la", 0, -1).Val()).To(Equal(before))
		})

		It("judges a waiter by its silence alone if its subscription is not open", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t")
			stand(ctx, "la", 1, "silent/1 1 60000 0 t1", spec.FullLife, false)
			stand(ctx, "la", 2, "gone/2 1 60000 0 t2", spec.FullLife, true)
			stand(ctx, "lb", 1, "gone/2 1 60000 0 t2", spec.FullLife, true)
			stand(ctx, "lb", 2, "silent/1 1 60000 0 t1", spec.FullLife, false)
			Expect(run(ctx, "release", "a b la lb", "t", 2)).To(Equal(none))
			Expect(on.Client.ZCard(ctx, "la").Val()).To(Equal(int64(4)))
			Expect(on.Client.ZCard(ctx, "lb").Val()).To(Equal(int64(2)), "only the other one is passed by")
		})

		It("serves no waiter twice, and wakes nobody behind one that is late", func(ctx SpecContext) {
			set(ctx, "a", "t")
			heard := listen(ctx, "box")
			for i := range 5 {
				stand(ctx, "la", float64(i+1), "box/"+strconv.Itoa(i)+" 1 60000 0 t7", 900*time.Millisecond, true)
			}
			Expect(run(ctx, "release", "a la", "t", 1)).To(Equal(none))
			Expect([]string{heard(), heard()}).To(Equal([]string{"0", ""}))
		})

		It("tells the next how long the keys are taken, if it would look later", func(ctx SpecContext) {
			set(ctx, "a", "t")
			heard := listen(ctx, "box")
			stand(ctx, "la", 1, "box/1 1 900 0 t1", spec.FullLife, true)
			stand(ctx, "la", 2, "box/2 1 900 0 t2", spec.FullLife, true)
			Expect(run(ctx, "release", "a la", "t", 1)).To(Equal(none))
			Expect(heard()).To(HavePrefix("1 granted "))
			Expect(heard()).To(Equal("2 after 900"))
		})

		It("a waiter that leaves gives back what it was handed, and nothing else", func(ctx SpecContext) {
			set(ctx, "a", "t7")
			set(ctx, "b", "other")
			stand(ctx, "lb", 1, "box/7 2 60000 0 t7", spec.FullLife, true)
			Expect(run(ctx, "release", "a b la lb", "t7", 2, "box/7 2 60000 0 t7")).To(Equal(spec.List{int64(2)}))
			Expect(everything(ctx)).To(Equal(map[string]string{"b": "other 1m"}))
		})
	})

	Describe("waiters.lua", func() {
		It("{ms, member, score, …}: all of a line; WRONGTYPE: the key is no line", func(ctx SpecContext) {
			stand(ctx, "la", 1795306246131123, "box/7 1 60000 0 t7 m", spec.FullLife, true)
			Expect(run(ctx, "waiters", "la")).To(HaveExactElements(BeNumerically("~", time.Now().UnixMilli(), 1000),
				"~box", MatchRegexp(`^-\d{16}$`), "box/7 1 60000 0 t7 m", "1795306246131123"))
			Expect(run(ctx, "waiters", "none")).To(HaveLen(1))
			set(ctx, "s", "x")
			_, err := run(ctx, "waiters", "s")
			Expect(err).To(MatchError(ContainSubstring("WRONGTYPE")))
		})
	})

	Describe("blocker.lua", func() {
		const before = "1795306246131123"
		It("{i, value, ms, ahead, holders, waits}: another's, of which many wait ahead", func(ctx SpecContext) {
			set(ctx, "a", "t m")
			set(ctx, "b", "other m d")
			on.Client.Set(ctx, "c", "other", 0)
			stand(ctx, "lb", 1795306246131122, "box/7 1 60000 0 t7 m", spec.FullLife, true)
			stand(ctx, "lb", 1795306246131124, "box/8 1 60000 0 t8 m", spec.FullLife, true)
			Expect(run(ctx, "blocker", "a b la na lb nb", "t", 2, "0")).To(HaveExactElements(
				int64(2), "other m d", BeNumerically("~", minute, 1000), int64(2), none, ""))
			Expect(run(ctx, "blocker", "a b la na lb nb", "t", 2, before)).To(ContainElement(int64(1)))
			Expect(run(ctx, "blocker", "c", "t", 1, "0")).To(Equal(spec.List{int64(1), "other", int64(-1), none, none, ""}))
		})
		It(`{i, "", 0, ahead, 0, ""}: others wait for it`, func(ctx SpecContext) {
			stand(ctx, "lb", 1795306246131122, "box/7 1 60000 0 t7 m", spec.FullLife, true)
			Expect(run(ctx, "blocker", "a b la na lb nb", "t", 2, before)).To(Equal(spec.List{int64(2), "", none, int64(1), none, ""}))
		})
		It("0: nothing is in the way", func(ctx SpecContext) {
			set(ctx, "a", "t m")
			on.Client.SAdd(ctx, "s", "x")
			stand(ctx, "lb", 1795306246131124, "box/7 1 60000 0 t7 m", spec.FullLife, true)
			Expect(run(ctx, "blocker", "a b la na lb nb", "t", 2, before)).To(Equal(none))
			Expect(run(ctx, "blocker", "s b la na lb nb", "t", 2, before)).To(Equal(none))
		})
	})

	Describe("refresh.lua", func() {
		It("0: every key has the new ttl", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t m d")
			Expect(run(ctx, "refresh", "a b", "t", hour, "")).To(Equal(int64(0)))
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t 60m", "b": "t m d 60m"}))
		})

		It("0: and the new metadata", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t m d")
			Expect(run(ctx, "refresh", "a b", "t", hour, "new")).To(Equal(int64(0)))
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t new 60m", "b": "t new 60m"}))
		})

		It("0: of a renewal, a key keeps a longer ttl, and gets the ttl if it had no expiry", func(ctx SpecContext) {
			set(ctx, "a", "t")
			on.Client.Set(ctx, "long", "t m", 2*time.Hour)
			on.Client.Set(ctx, "endless", "t m", 0)
			Expect(run(ctx, "refresh", "a long endless", "t", hour, "", "1")).To(Equal(int64(0)))
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t 60m", "long": "t m 120m", "endless": "t m 60m"}))
		})

		It("{i, …}: another's, another type, gone; nothing written", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t0")
			on.Client.SAdd(ctx, "s", "x")
			before := everything(ctx)
			Expect(run(ctx, "refresh", "a b s gone", "t", hour, "new")).To(Equal(spec.List{int64(2), int64(3), int64(-4)}))
			Expect(everything(ctx)).To(Equal(before))
		})

		DescribeTable("ERR: a ttl that is not a whole number above 0, nothing written", func(ctx SpecContext, ttl any) {
			set(ctx, "a", "t")
			_, err := run(ctx, "refresh", "a", "t", ttl, "")
			Expect(err).To(MatchError(ContainSubstring("ERR ttl")))
			Expect(everything(ctx)).To(Equal(map[string]string{"a": "t 1m"}))
		}, badTTLs)
	})

	Describe("release.lua", func() {
		It("0: every key deleted", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t m")
			Expect(run(ctx, "release", "a b", "t", 2)).To(Equal(int64(0)))
			Expect(on.Keys(ctx)).To(BeEmpty())
		})

		It("{i, …}: another's, another type, gone; the rest deleted", func(ctx SpecContext) {
			set(ctx, "a", "t0")
			set(ctx, "b", "t m")
			on.Client.SAdd(ctx, "s", "x")
			Expect(run(ctx, "release", "a b s gone", "t", 4)).To(Equal(spec.List{int64(1), int64(3), int64(-4)}))
			Expect(on.Keys(ctx)).To(ConsistOf("a", "s"))
		})

		It("a replay finds every key gone", func(ctx SpecContext) {
			set(ctx, "a", "t")
			Expect(run(ctx, "release", "a", "t", 1)).To(Equal(int64(0)))
			Expect(run(ctx, "release", "a", "t", 1)).To(Equal(spec.List{int64(-1)}))
		})
	})

	Describe("obtain_each.lua", func() {
		It("1, 0, -1: granted, refused, left alone", func(ctx SpecContext) {
			const token = "0123456789abcdefghijkl" // as long as ours
			set(ctx, "mine", token+" m")
			set(ctx, "taken", "another-0123456789abcdefgh m")
			on.Client.SAdd(ctx, "s", "x")
			on.Client.ZAdd(ctx, "line", redis.Z{Score: 1, Member: "somebody/1"})
			before := everything(ctx)
			Expect(run(ctx, "obtain_each", "free taken mine s queued free  1 2 3 4 line 6",
				token, "", minute, token, "m", minute, token, "m", minute, token, "", minute, token, "", minute,
				"1"+token, "", minute)).To(Equal(spec.List{int64(1), none, int64(-1), int64(-1), int64(-1), none}))
			before["free"] = token + " 1m"
			Expect(everything(ctx)).To(Equal(before))
		})

		It("-1: for a ttl that obtain has an error for, and nothing is written", func(ctx SpecContext) {
			Expect(run(ctx, "obtain_each", "a b  1 2", "t", "", "soon", "t", "m d", hour)).
				To(Equal(spec.List{int64(-1), int64(1)}))
			Expect(everything(ctx)).To(Equal(map[string]string{"b": "t m d 60m"}))
		})
	})

	Describe("release_each.lua", func() {
		It("0, {-1}, {1}, -1: deleted, gone, another's, left alone", func(ctx SpecContext) {
			for key, value := range map[string]string{"a": "t", "b": "t m", "taken": "t0", "queued": "t"} {
				set(ctx, key, value)
			}
			on.Client.SAdd(ctx, "s", "x")
			on.Client.ZAdd(ctx, "line", redis.Z{Score: 1, Member: "somebody/1"})
			Expect(run(ctx, "release_each", "a b taken queued s gone a  1 2 3 line 5 6 7", "t", "t", "t", "t", "t", "t", "t")).
				To(Equal(spec.List{none, none, spec.List{int64(1)}, int64(-1), spec.List{int64(1)}, spec.List{int64(-1)}, spec.List{int64(-1)}}))
			Expect(on.Keys(ctx)).To(ConsistOf("taken", "queued", "s", "line"))
		})
	})

	Describe("pttl.lua", func() {
		It("ms: the least", func(ctx SpecContext) {
			set(ctx, "a", "t")
			on.Client.Set(ctx, "b", "t m", time.Hour)
			on.Client.Set(ctx, "c", "t", 0)
			Expect(run(ctx, "pttl", "c b a", "t")).To(BeNumerically("~", minute, 1000))
		})

		It("-1: none has an expiry", func(ctx SpecContext) {
			on.Client.Set(ctx, "a", "t", 0)
			Expect(run(ctx, "pttl", "a", "t")).To(Equal(int64(-1)))
		})

		It("0: a key gone, another's, of another type", func(ctx SpecContext) {
			set(ctx, "a", "t")
			set(ctx, "b", "t0")
			on.Client.SAdd(ctx, "s", "x")
			for _, keys := range []string{"a gone", "b a", "a s"} {
				Expect(run(ctx, "pttl", keys, "t")).To(Equal(int64(0)))
			}
		})
	})

	Describe("inspect.lua", func() {
		It("{value, ms, …}: held, without expiry, gone, of another type", func(ctx SpecContext) {
			set(ctx, "a", "t m d")
			on.Client.Set(ctx, "b", "t", 0)
			on.Client.SAdd(ctx, "s", "x")
			Expect(run(ctx, "inspect", "a b gone s", 4)).To(HaveExactElements(
				"t m d", BeNumerically("~", minute, 1000), none, none, BeEmpty(), "", "t", int64(-1), none, none, BeEmpty(), "",
				nil, int64(-2), none, none, BeEmpty(), "", nil, int64(-1), none, none, BeEmpty(), ""))
		})

		It("{…, waiters, since, {entry, ticket, late, limit, …}}: live waiters", func(ctx SpecContext) {
			on.Stand(ctx, "la", 5, "dead/1 1 60000 0 t", -time.Second, true)
			on.Stand(ctx, "la", 6, "late/1 1 60000 0 t", spec.FullLife/4, true)
			on.Stand(ctx, "la", 7, "box/2 1 60000 0+5 k1:xxt", spec.FullLife, true)
			on.Stand(ctx, "la", 8, "box/3 00 60000 0 t", spec.FullLife, true)
			on.Client.ZAdd(ctx, "la", redis.Z{Score: -4, Member: "=box/3"})
			on.Stand(ctx, "la", 9, "box/4 00 60000 0+2 k1t", spec.FullLife, true)
			on.Client.ZAdd(ctx, "la", redis.Z{Score: -1795306246131122, Member: "=box/4"})
			late := spec.List{"late/1 1 60000 0 t", int64(6), int64(1), int64(1)}
			naming := spec.List{"box/2 1 60000 0+5 k1:xxt", int64(7), none, int64(1)}
			sharing := spec.List{"box/3 00 60000 0 t", int64(8), none, int64(4), "box/4 00 60000 0+2 k1t", int64(9), none, none}
			for _, test := range []struct {
				args  []any
				count int64
				shown spec.List
			}{
				{nil, 4, spec.List{}},
				{[]any{"0", "", 2}, 4, slices.Concat(late, naming)},
				{[]any{"0", "", 9}, 4, slices.Concat(late, naming, sharing)},
				{[]any{"0", "", 9, 10}, 4, slices.Concat(naming, sharing)},
				{[]any{"0", "", 1, 9}, 3, naming},
				{[]any{"0", "", 9, 9}, 3, slices.Concat(naming, sharing[:4])},
			} {
				Expect(run(ctx, "inspect", "a ha la na", append([]any{"1 1=1"}, test.args...)...)).To(HaveExactElements(
					nil, int64(-2), test.count, int64(6), Equal(test.shown), ""))
			}
		})

		Describe("notes of what a holder waits for", func() {
			inspect := func(ctx context.Context, args ...any) any { // what the holder of a waits for
				GinkgoHelper()
				reply, err := run(ctx, "inspect", "a b ha hb la na lb nb", append([]any{"2 1=1 2=1", "0", "", 9}, args...)...)
				Expect(err).NotTo(HaveOccurred())
				return reply.(spec.List)[5]
			}
			explain := func(ctx context.Context) any { // what the holder of a waits for, as another caller learns it
				GinkgoHelper()
				reply, err := run(ctx, "blocker", "a ha la na", "me", "1 1=1", "0")
				Expect(err).NotTo(HaveOccurred())
				return reply.(spec.List)[5]
			}
			BeforeEach(func(ctx SpecContext) {
				set(ctx, "a", "t m")
				set(ctx, "b", "u")
				on.Stand(ctx, "la", 7, "box/2 1 60000 0 v", spec.FullLife, true)
			})

			It("{…, waits}: it is left where somebody waits, and expires", func(ctx SpecContext) {
				Expect(inspect(ctx)).To(Equal(""))
				Expect(inspect(ctx, 6, "w1:x", "t", "u")).To(Equal(""), "a search reads none, and looks at lower tickets only")
				Expect(on.Client.Exists(ctx, "nb").Val()).To(BeZero(), "nobody waits for b")
				Expect(on.Client.Get(ctx, "na").Val()).To(Equal("t w1:x"))
				Expect(on.Client.PTTL(ctx, "na").Val()).To(BeNumerically("~", 6*time.Second, time.Second))
				Expect(inspect(ctx)).To(Equal("w1:x"))
				inspect(ctx, 9, "w1:y", "t", "u")
				Expect(inspect(ctx)).To(Equal("w1:y"))
				Expect(explain(ctx)).To(Equal("w1:y"))
			})

			It("says nothing of another holder, or of one with a token that begins so", func(ctx SpecContext) {
				inspect(ctx, 9, "w1:x", "t", "")
				for _, other := range []string{"other", "t2", "", " m"} {
					set(ctx, "a", other)
					Expect(inspect(ctx)).To(Equal(""), other)
					Expect(explain(ctx)).To(Equal(""), other)
				}
				Expect(on.Client.Del(ctx, "a").Err()).To(Succeed())
				Expect(inspect(ctx)).To(Equal(""))
			})

			It("is nothing if another key stands in its place", func(ctx SpecContext) {
				on.Client.SAdd(ctx, "na", "t w1:x")
				Expect(inspect(ctx)).To(Equal(""))
				Expect(explain(ctx)).To(Equal(""))
				set(ctx, "la", "x")
				Expect(inspect(ctx, 9, "w1:x", "t", "")).To(Equal(""), "no line")
				Expect(on.Client.Type(ctx, "na").Val()).To(Equal("set"))
			})

			It("is not missed where there is no room for it", func(ctx SpecContext) {
				Expect(run(ctx, "inspect", "a ha", "1 1=1", "0", "", 9, 9, "w1:x", "t")).To(HaveLen(6))
				Expect(run(ctx, "blocker", "a ha", "me", "1 1=1", "0")).To(HaveLen(6))
			})
		})
	})
})

// badTTLs are entries for tables whose body passes them to a script.
var badTTLs = []TableEntry{
	Entry("zero", "0"), Entry("negative", "-5"), Entry("a fraction", "1.5"), Entry("an exponent", "1e3"),
	Entry("hexadecimal", "0x10"), Entry("no number", "soon"), Entry("empty", ""), Entry("with a leading zero", "010"),
}

var _ = Describe("Every script", func() {
	scripts := spec.Scripts()

	It("is there", func() {
		Expect(scripts).To(ContainElements("obtain.lua", "refresh.lua", "release.lua", "pttl.lua"))
	})

	for _, script := range scripts {
		It(script+" reads the KEYS and ARGV that its header names, and no others", func() {
			header, body, found := strings.Cut(spec.Written(strings.TrimSuffix(script, ".lua")), "]]")
			Expect(found).To(BeTrue())
			Expect(header).To(HavePrefix("--[[\n" + strings.TrimSuffix(script, ".lua") + ": "))
			for _, section := range []string{"KEYS", "ARGV", "Returns", "Errors"} {
				Expect(header).To(MatchRegexp("(?m)^" + section))
			}
			index := regexp.MustCompile(`ARGV\[[^\]]*\]`)
			named := index.FindAllString(header, -1)
			read := index.FindAllString(strings.NewReplacer(" ", "", "*", "").Replace(body), -1)
			slices.Sort(named)
			slices.Sort(read)
			Expect(slices.Compact(read)).To(Equal(slices.Compact(named)))
			Expect(strings.Contains(header, "KEYS[n+1]")).To(Equal(strings.Contains(body, "KEYS[n + 1]")))
		})

		It(script+" has no shebang, and loses no digits", func() {
			text := spec.Written(strings.TrimSuffix(script, ".lua"))
			Expect(text).NotTo(HavePrefix("#!"))
			Expect(text).NotTo(MatchRegexp(`\d{15,} *\.\.`), "a large number in a string loses digits")
		})
	}
})

var _ = spec.DescribeOn(spec.OnServer, "Scripts that Redis breaks off", func(on *spec.Redis) {
	// limit makes a user who may run all but some commands, and not MSETEX either, which may stand in for them.
	limit := func(ctx context.Context, server *redistest.Server, without ...string) (admin, limited *redis.Client) {
		GinkgoHelper()
		admin = spec.Connect(&redis.Options{Addr: server.Addr()})
		user := []any{"ACL", "SETUSER", "limited", "on", "nopass", "~*", "+@all"}
		if info, _ := admin.Do(ctx, "COMMAND", "INFO", "msetex").Slice(); len(info) == 1 && info[0] != nil {
			without = append(without, "msetex")
		}
		for _, command := range without {
			user = append(user, "-"+command)
		}
		Expect(admin.Do(ctx, user...).Err()).To(Succeed())
		return admin, spec.Connect(&redis.Options{Addr: server.Addr(), Username: "limited", Password: "x"})
	}
	refusal := MatchError(Or(ContainSubstring("can't run this command"), ContainSubstring("has no permissions to run the")))

	DescribeTable("leave no key behind that has no expiry", func(ctx SpecContext, command string) {
		admin, limited := limit(ctx, spec.StartServer(), command)
		Expect(admin.Set(ctx, "mine", "t", time.Minute).Err()).To(Succeed())
		refused := false
		for _, keys := range [][]string{{"a", "b", "fence"}, {"a", "mine", "b", "fence"}} {
			if err := limited.Eval(ctx, spec.Source("obtain"), keys, "t", "m", 3_600_000, len(keys)-1, "1").Err(); err == nil {
				Expect(admin.Del(ctx, "a", "b", "fence").Val()).To(BeNumerically("==", 3))
				continue
			} else {
				refused = true
				Expect(err).To(refusal)
			}
			Expect(admin.Keys(ctx, "*").Val()).To(ConsistOf("mine"))
		}
		Expect(refused).To(BeTrue(), "some path needs the command")
	},
		Entry("without PEXPIRE", "pexpire"),
		Entry("without SET", "set"),
		Entry("without PTTL", "pttl"),
		Entry("without MSETNX", "msetnx"),
		Entry("without TIME", "time"),
	)

	It("leave no key behind of a set that is taken in several pieces", func(ctx SpecContext) {
		admin, limited := limit(ctx, spec.StartServer(), "pexpire")
		keys := make([]string, 4500)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		err := limited.Eval(ctx, spec.Source("obtain"), keys, "t", "m", 3_600_000, len(keys), "0").Err()
		Expect(err).To(refusal)
		Expect(admin.Keys(ctx, "*").Val()).To(BeEmpty())
		Expect(admin.Set(ctx, "4321", "t", time.Minute).Err()).To(Succeed())
		Expect(admin.Eval(ctx, spec.Source("obtain"), keys, "other", "", 3_600_000, len(keys), "0").Val()).To(Equal(int64(0)))
		Expect(admin.Keys(ctx, "*").Val()).To(ConsistOf("4321"))
		Expect(admin.Eval(ctx, spec.Source("obtain"), keys[:4000], "other", "", 3_600_000, 4000, "0").Val()).To(Equal(int64(1)))
		Expect(admin.DBSize(ctx).Val()).To(Equal(int64(4001)))
		Expect(admin.PTTL(ctx, "3999").Val()).To(BeNumerically("~", time.Hour, time.Minute))
	})

	It("leave several locks alone of which they may not do something", func(ctx SpecContext) {
		server := spec.StartServer()
		Expect(spec.Connect(&redis.Options{Addr: server.Addr()}).Set(ctx, "mine", "t", time.Minute).Err()).To(Succeed())
		leftAlone := spec.List{int64(-1), int64(-1)}
		for script, commands := range map[string][]string{
			"obtain_each": {"exists", "set"}, "release_each": {"exists", "mget", "del"},
		} {
			for _, command := range commands {
				admin, limited := limit(ctx, server, command)
				args := []any{"t", "", 60_000, "t", "", 60_000}
				if script == "release_each" {
					args = []any{"t", "t"}
				}
				Expect(limited.Eval(ctx, spec.Source(script), []string{"mine", "free", "1", "2"}, args...).Val()).
					To(Equal(leftAlone), "%s without %s", script, command)
				Expect(admin.Keys(ctx, "*").Val()).To(ConsistOf("mine"))
			}
		}
	})

	It("leave no key behind without PEXPIRE and DEL", func(ctx SpecContext) {
		admin, limited := limit(ctx, spec.StartServer(), "pexpire", "del")
		Expect(limited.Eval(ctx, spec.Source("obtain"), []string{"a", "b"}, "t", "m", 60_000, 2, "0").Err()).NotTo(Succeed())
		Eventually(func() []string { return admin.Keys(ctx, "*").Val() }).Should(BeEmpty())
	})

	It("release what they can without EXISTS", func(ctx SpecContext) {
		admin, limited := limit(ctx, spec.StartServer(), "exists")
		Expect(admin.Set(ctx, "mine", "t", time.Minute).Err()).To(Succeed())
		Expect(limited.Eval(ctx, spec.Source("release"), []string{"gone", "mine"}, "t", 2).Val()).To(Equal(spec.List{int64(1)}))
		Expect(admin.Keys(ctx, "*").Val()).To(BeEmpty())
	})

	It("leave no key behind when Redis refuses the ttl", func(ctx SpecContext) {
		Expect(on.Client.Set(ctx, "mine", "t", time.Minute).Err()).To(Succeed())
		err := on.Client.Eval(ctx, spec.Source("obtain"), []string{"a", "mine", "b"}, "t", "", "9223372036854775807", 3, "0").Err()
		Expect(err).To(MatchError(ContainSubstring("invalid expire time")))
		Expect(on.Keys(ctx)).To(ConsistOf("mine"))
	})

	It("take nothing when there is no memory left, and release what is held all the same", func(ctx SpecContext) {
		server := spec.StartServer("maxmemory-policy noeviction")
		client := spec.Connect(&redis.Options{Addr: server.Addr()})
		Expect(client.Set(ctx, "held", "t", time.Minute).Err()).To(Succeed())
		Expect(client.ConfigSet(ctx, "maxmemory", "1").Err()).To(Succeed())
		err := client.Eval(ctx, spec.Source("obtain"), []string{"a", "b"}, "t", "", 60_000, 2, "0").Err()
		Expect(err).To(MatchError(ContainSubstring("OOM")))
		Expect(client.Eval(ctx, spec.Source("refresh"), []string{"held"}, "t", 60_000, "").Err()).To(Succeed())
		Expect(client.Eval(ctx, spec.Source("release"), []string{"held"}, "t", 1).Val()).To(Equal(int64(0)))
		Expect(client.Keys(ctx, "*").Val()).To(BeEmpty())
	})
})
