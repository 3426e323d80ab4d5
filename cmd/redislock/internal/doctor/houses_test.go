//go:build unix

package doctor

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
)

var _ = Describe("doctor and shared keys", func() {
	const house = "a{a}:redislock:house"
	on := clitest.OnServer("appendonly yes", "appendfsync always")

	DescribeTable("reports what somebody has left of a lock",
		func(ctx SpecContext, breakIt func(context.Context, *redis.Client) error, status, words string, code int) {
			for _, key := range []string{"a", "{b}:1"} {
				_, err := redislock.Obtain(ctx, on.Client, key, time.Minute, &redislock.Options{Shared: []string{key}})
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(breakIt(ctx, on.Client)).To(Succeed())
			session := on.Run("doctor", "--json")
			found := checkup(session)
			Expect(found["shared keys"].Status).To(Equal(status), clitest.Stdout(session))
			Expect(found["shared keys"].Found).To(Equal(words))
			Expect(session).To(gexec.Exit(code))
		},
		Entry("nothing wrong", func(context.Context, *redis.Client) error { return nil }, "ok", "2, each with its house", 0),
		Entry("a house without a key", func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, "a").Err() },
			"warn", `the house "`+house+`" has no key`, 1),
		Entry("a key without a house", func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, house).Err() },
			"warn", `"a" is shared, and has no house`, 1),
		Entry("a key without expiry", func(ctx context.Context, c *redis.Client) error { return c.Persist(ctx, "a").Err() },
			"warn", `"a" is shared, and has no expiry`, 1),
		Entry("a house without expiry", func(ctx context.Context, c *redis.Client) error { return c.Persist(ctx, house).Err() },
			"warn", `the house of "a" has no expiry`, 1),
		Entry("an exclusive key with a house", func(ctx context.Context, c *redis.Client) error {
			return c.Set(ctx, "a", "q83vEjRWeJCrze8SNFZ4kA", time.Minute).Err()
		}, "warn", `"a" is exclusive, and has a house`, 1),
		Entry("two at once", func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, house, "{b}:1").Err() },
			"warn", `the house "{b}:1:redislock:house" has no key, and 1 more like that`, 1),
	)
})
