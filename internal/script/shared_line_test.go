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

var _ = spec.DescribeOnRedis("In the line of a key that several may hold,", func(on *spec.Redis) {
	const full, ended = spec.FullLife, -time.Second
	// stand gives a waiter a position in the line "la" of the key "a". limit is how many holders it wants; 0 for no limit.
	stand := func(ctx context.Context, ticket float64, id string, limit int, left time.Duration) {
		GinkgoHelper()
		score := -float64(limit)
		if limit == 0 {
			score = -ticket
		}
		entry := id + " 00 60000 0 t"
		if limit == 1 {
			entry = id + " 1 60000 0 t"
		} else {
			Expect(on.Client.ZAdd(ctx, "la", redis.Z{Score: score, Member: "=" + id}).Err()).To(Succeed())
		}
		on.Stand(ctx, "la", ticket, entry, left, false)
	}
	members := func(ctx context.Context) []string { return on.Client.ZRange(ctx, "la", 0, -1).Val() }
	share := func(ctx context.Context, limit string, args ...any) any {
		GinkgoHelper()
		reply, err := on.Run(ctx, "obtain", "a ha la", append([]any{"me", "", 60000, "1 1=" + limit}, args...)...)
		Expect(err).NotTo(HaveOccurred())
		return reply
	}
	soon := float64(time.Now().UnixMicro())

	It("a beat removes a waiter that has left with all its members", func(ctx SpecContext) {
		stand(ctx, soon, "box/1", 0, full)
		stand(ctx, soon+1, "box/2", 4, full)
		stand(ctx, soon+2, "other/1", 1, full)
		_, err := on.Run(ctx, "beat", "a la", "box", 3, "1", "0", "box/1", "box/2")
		Expect(err).NotTo(HaveOccurred())
		Expect(members(ctx)).To(ConsistOf("~box", "~other", "other/1 1 60000 0 t"))
		Expect(share(ctx, "0")).To(Equal(int64(0)), "behind the other")
	})

	for limit, name := range map[int]string{1: "a writer", 0: "a reader", 2: "one who wants a permit"} {
		It("who finds "+name+" dead removes its mark as well, so that its inbox misses it", func(ctx SpecContext) {
			stand(ctx, soon, "dead/1", limit, ended)
			stand(ctx, soon+1, "live/1", 3, full)
			Expect(share(ctx, "2")).To(Equal(int64(0)), "behind the live one")
			Expect(members(ctx)).To(ConsistOf("~live", "=live/1", "live/1 00 60000 0 t"))
		})
	}

	for _, limit := range []string{"0", "5000"} {
		It("2,000 dead ones are removed at once, before one with the limit "+limit, func(ctx SpecContext) {
			all := make([]redis.Z, 0, 4000)
			for i := range 2000 {
				id := "dead/" + strconv.Itoa(i)
				all = append(all, redis.Z{Score: soon + float64(i), Member: id + " 00 60000 0 t"}, redis.Z{Score: -3, Member: "=" + id})
			}
			Expect(on.Client.ZAdd(ctx, "la", all...).Err()).To(Succeed())
			stand(ctx, soon+5000, "live/1", 1, full)
			Expect(share(ctx, limit)).To(Equal(int64(0)), "behind the live one")
			Expect(members(ctx)).To(ConsistOf("~live", "live/1 1 60000 0 t"))
		})
	}
})
