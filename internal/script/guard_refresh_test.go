package script_test

import (
	"context"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/spec"
)

// How a refresh puts back what a Redis has forgotten.
var _ = describeGuarded("refresh.lua", func(on *guarded) {
	const refresh, renewal = "0", "1"
	// back matches {0, closed, id, i, …}.
	back := func(ctx context.Context, ms int64, indices ...any) types.GomegaMatcher {
		GinkgoHelper()
		return HaveExactElements(append([]any{none, left(ms), on.id(ctx)}, indices...)...)
	}
	each := func(what string, body func(ctx SpecContext, kind string)) {
		DescribeTable(what, body, Entry("a Refresh", refresh), Entry("a renewal", renewal))
	}

	each("{0, closed, id}: no key was gone, and each has the new ttl", func(ctx SpecContext, kind string) {
		on.shut(ctx, minute)
		on.Set(ctx, "a", "t")
		on.Set(ctx, "b", "t m d")
		for range 2 { // the second time as a replay
			Expect(on.run(ctx, "refresh", "a b", "t", hour, "", kind, "kept")).To(back(ctx, minute))
			Expect(on.locks(ctx)).To(Equal(map[string]string{"a": "t 60m", "b": "t m d 60m"}))
		}
	})

	each("{0, closed, id, i, …}: keys were gone, and are back", func(ctx SpecContext, kind string) {
		on.shut(ctx, minute)
		on.Set(ctx, "b", "t m d")
		Expect(on.run(ctx, "refresh", "a b c", "t", hour, "", kind, "")).To(back(ctx, minute, int64(1), int64(3)))
		all := map[string]string{"a": "t 60m", "b": "t m d 60m", "c": "t 60m"}
		Expect(on.locks(ctx)).To(Equal(all))
		Expect(on.run(ctx, "refresh", "a b c", "t", hour, "", kind, "")).To(back(ctx, minute), "a replay finds them there")
		Expect(on.locks(ctx)).To(Equal(all))
	})

	each("{0, closed, id, i, …}: with the metadata that the caller has kept", func(ctx SpecContext, kind string) {
		on.shut(ctx, minute)
		on.Set(ctx, "b", "t other")
		Expect(on.run(ctx, "refresh", "a b", "t", hour, "", kind, "m d")).To(back(ctx, minute, int64(1)))
		Expect(on.locks(ctx)).To(Equal(map[string]string{"a": "t m d 60m", "b": "t other 60m"}))
	})

	each("{0, closed, id, i, …}: with new metadata", func(ctx SpecContext, kind string) {
		on.shut(ctx, minute)
		on.Set(ctx, "b", "t m")
		Expect(on.run(ctx, "refresh", "a b", "t", hour, "new one", kind, "m")).To(back(ctx, minute, int64(1)))
		Expect(on.locks(ctx)).To(Equal(map[string]string{"a": "t new one 60m", "b": "t new one 60m"}))
	})

	It("{0, closed, id, i, …}: a renewal leaves a key alone that lasts longer, and a Refresh does not", func(ctx SpecContext) {
		on.shut(ctx, minute)
		for kind, want := range map[string]string{renewal: "t 120m", refresh: "t 60m"} {
			Expect(on.Client.Set(ctx, "long", "t", 2*time.Hour).Err()).To(Succeed())
			on.Client.Del(ctx, "gone")
			Expect(on.run(ctx, "refresh", "gone long", "t", hour, "", kind, "")).To(back(ctx, minute, int64(1)))
			Expect(on.locks(ctx)).To(Equal(map[string]string{"gone": "t 60m", "long": want}))
		}
	})

	each("{0, closed, id, i, …}: in the call that closes the guard", func(ctx SpecContext, kind string) {
		Expect(on.run(ctx, "refresh", "a b", "t", hour, "", kind, "m")).To(Equal(spec.List{none, int64(hour), on.id(ctx), int64(1), int64(2)}))
		Expect(on.locks(ctx)).To(Equal(map[string]string{"a": "t m 60m", "b": "t m 60m"}))
		Expect(on.marker(ctx)).To(marked(on.id(ctx), hour, 0, BeNumerically(">", 0)))
	})

	DescribeTable("{i, …}: one is another's, so none is put back", func(ctx SpecContext, kind, metadata string) {
		on.shut(ctx, minute)
		on.Set(ctx, "mine", "t m")
		on.Set(ctx, "taken", "t0")
		on.Client.SAdd(ctx, "s", "x")
		before := on.Everything(ctx)
		for range 2 {
			Expect(on.run(ctx, "refresh", "gone mine taken also s", "t", hour, metadata, kind, "m")).
				To(Equal(spec.List{int64(-1), int64(3), int64(-4), int64(5)}))
			Expect(on.run(ctx, "refresh", "s gone", "t", hour, metadata, kind, "m")).To(Equal(spec.List{int64(1), int64(-2)}))
			Expect(on.run(ctx, "refresh", "taken mine", "t", hour, metadata, kind, "m")).To(Equal(spec.List{int64(1)}))
		}
		Expect(on.Everything(ctx)).To(Equal(before))
	},
		Entry("a Refresh", refresh, ""), Entry("a Refresh with metadata", refresh, "new"), Entry("a renewal", renewal, ""))

	each("{i, …}: gone while the guard is open, so nothing is put back", func(ctx SpecContext, kind string) {
		on.open(ctx)
		on.Set(ctx, "mine", "t m")
		before := on.Everything(ctx)
		Expect(on.run(ctx, "refresh", "gone mine also", "t", hour, "", kind, "m")).To(Equal(spec.List{int64(-1), int64(-3)}))
		Expect(on.Everything(ctx)).To(Equal(before))
	})

	Describe("in the first part of a closure", func() {
		const part, grace = minute, hour + minute // as deposed has them
		run := func(ctx context.Context, keys, kind string) (any, error) {
			return on.RunGuarded(ctx, "refresh", keys, deposed, "t", hour, "new", kind, "m")
		}
		// shut closes the guard for another ms.
		shut := func(ctx context.Context, ms int64) { on.mark(ctx, on.id(ctx), grace, part, on.now(ctx)+ms) }

		each("{0, closed, id, -ms}: nothing was done, whatever the keys hold", func(ctx SpecContext, kind string) {
			on.Set(ctx, "mine", "t m")
			on.Set(ctx, "taken", "t0")
			shut(ctx, grace)
			before := on.Everything(ctx)
			for _, keys := range []string{"mine", "gone", "taken", "gone mine taken"} {
				reply, err := run(ctx, keys, kind)
				Expect(err).NotTo(HaveOccurred())
				Expect(reply).To(HaveExactElements(none, left(grace), on.id(ctx), BeNumerically("<", 0)), keys)
				closed, again := reply.(spec.List)[1].(int64), -reply.(spec.List)[3].(int64)
				Expect(closed - again).To(Equal(int64(hour)))
			}
			Expect(on.Everything(ctx)).To(Equal(before))
		})

		each("{0, closed, id, -ms}: also by the call that closes the guard, and then by a replay", func(ctx SpecContext, kind string) {
			Expect(run(ctx, "a", kind)).To(Equal(spec.List{none, int64(grace), on.id(ctx), int64(-part)}))
			Expect(run(ctx, "a", kind)).To(HaveExactElements(none, left(grace), on.id(ctx), And(BeNumerically("<", 0), BeNumerically(">=", -part))))
			Expect(on.Keys(ctx)).To(ConsistOf(keyname.GuardMarker))
		})

		each("{0, closed, id, i, …}: after ms", func(ctx SpecContext, kind string) {
			shut(ctx, grace-part)
			Expect(run(ctx, "a", kind)).To(back(ctx, grace-part, int64(1)))
			Expect(on.locks(ctx)).To(Equal(map[string]string{"a": "t new 60m"}))
		})

		It("{0, closed, id, -ms}: it lasts longer if another program has longer locks", func(ctx SpecContext) {
			on.mark(ctx, on.id(ctx), grace-1000, part, on.now(ctx)+grace-1000)
			Expect(run(ctx, "a", renewal)).To(HaveExactElements(none, left(grace), on.id(ctx), left(-part+5*minute)))
		})
	})

	// refusing returns the script as if Redis refused to SET one key.
	refusing := func(key string) string {
		GinkgoHelper()
		const locals = "local KEYS, call, pcall = KEYS, redis.call, redis.pcall"
		text := spec.Guarded("refresh")
		Expect(strings.Count(text, locals)).To(Equal(1))
		return strings.Replace(text, locals, `local KEYS, call = KEYS, redis.call
local function pcall(command, key, ...)
	return command == 'SET' and key == '`+key+`' and { err = 'ERR refused' } or redis.pcall(command, key, ...)
end`, 1)
	}

	DescribeTable("Those of a SET that Redis refuses; no key is put back", func(ctx SpecContext, key, kind, metadata string) {
		on.shut(ctx, minute)
		on.Set(ctx, "b", "t m")
		before := on.Everything(ctx)
		names := []string{"a", "b", "c", "d", keyname.GuardMarker}
		_, err := on.Client.Eval(ctx, refusing(key), names, "t", hour, metadata, kind, "m", noDeposed).Result()
		Expect(err).To(MatchError("ERR refused"))
		Expect(on.Everything(ctx)).To(Equal(before))
		Expect(on.run(ctx, "refresh", "a b c d", "t", hour, "", kind, "m")).To(back(ctx, minute, int64(1), int64(3), int64(4)))
	},
		Entry("the first", "a", renewal, ""),
		Entry("one in between", "c", renewal, ""),
		Entry("the last", "d", refresh, "new"),
	)

	DescribeTable("ERR: a ttl that is not a whole number above 0, nothing written", func(ctx SpecContext, ttl any) {
		_, err := on.run(ctx, "refresh", "a", "t", ttl, "", renewal, "")
		Expect(err).To(MatchError(ContainSubstring("ERR ttl")))
		Expect(on.Keys(ctx)).To(BeEmpty())
	}, badTTLs)

	It("{0, closed, id, i, …}: more keys than unpack can take, all or none", func(ctx SpecContext) {
		const n = 8_200
		names := make([]string, n, n+1)
		for i := range names {
			names[i] = "k" + strconv.Itoa(i)
		}
		run := func() (spec.List, error) {
			reply, err := on.Client.Eval(ctx, spec.Guarded("refresh"), append(names, keyname.GuardMarker), "t", hour, "", renewal, "m", noDeposed).Result()
			list, _ := reply.(spec.List)
			return list, err
		}
		on.shut(ctx, 10*minute)
		on.Set(ctx, names[n-1], "t0")
		on.Set(ctx, names[5000], "t m")
		lost, err := run()
		Expect(err).NotTo(HaveOccurred())
		Expect(lost).To(HaveLen(n - 1))
		Expect([]any{lost[0], lost[n-2]}).To(Equal([]any{int64(-1), int64(n)}))
		Expect(on.Client.DBSize(ctx).Val()).To(Equal(int64(3)))

		Expect(on.Client.Del(ctx, names[n-1]).Err()).To(Succeed())
		put, err := run()
		Expect(err).NotTo(HaveOccurred())
		Expect(put).To(HaveLen(3 + n - 1))
		Expect([]any{put[0], put[3], put[len(put)-1]}).To(Equal([]any{none, int64(1), int64(n)}))
		Expect(on.Client.DBSize(ctx).Val()).To(Equal(int64(n + 1)))
		var ttls []*redis.DurationCmd
		_, err = on.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, name := range names {
				ttls = append(ttls, pipe.PTTL(ctx, name))
			}
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
		for i, ttl := range ttls {
			if ttl.Val() < 50*time.Minute {
				Fail(names[i] + " lasts for " + ttl.Val().String())
			}
		}
		for _, value := range on.Client.MGet(ctx, names...).Val() {
			if value != "t m" {
				Fail("a key holds something else")
			}
		}
		again, err := run()
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(HaveLen(3), "a replay finds them there")
	})
})
