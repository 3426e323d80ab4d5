package locking

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
)

var _ = Describe("renewals", func() {
	const never, second = time.Duration(-1), time.Second
	type look struct {
		at, ttl time.Duration
		token   string
	}

	DescribeTable("tells from the ttls of several looks how long ago a key was renewed",
		func(since time.Duration, looks ...look) {
			start, r := time.Now(), renewals{}
			for _, l := range looks {
				r.see(Obstacles{Blocked: []*redislock.RefusedError{{Key: "a", Token: l.token, TTL: l.ttl}}}, start.Add(l.at))
			}
			Expect(r.since("a", start.Add(5*second))).To(Equal(since))
		},
		Entry("not from one look", never, look{0, 30 * second, "t"}),
		Entry("not while the ttl runs out", never, look{0, 30 * second, "t"}, look{second, 29 * second, "t"}),
		Entry("not from an answer that was late", never, look{0, 30 * second, "t"}, look{second, 29150 * time.Millisecond, "t"}),
		Entry("at the look that has the longest ttl", second, look{0, 20 * second, "t"}, look{4 * second, 30 * second, "t"}),
		Entry("as long before a look as the ttl is shorter than the longest", 3*second/2,
			look{0, 30 * second, "t"}, look{3 * second, 27 * second, "t"}, look{4 * second, 29500 * time.Millisecond, "t"}),
		Entry("not before the look that did not see it", 2*second,
			look{0, 30 * second, "t"}, look{3 * second, 10 * second, "t"}, look{4 * second, 20 * second, "t"}),
		Entry("of a ttl that is shorter than the time between looks", second,
			look{0, 300 * time.Millisecond, "t"}, look{4 * second, 300 * time.Millisecond, "t"}),
		Entry("still, when the ttl runs out again", 3*second,
			look{0, 20 * second, "t"}, look{2 * second, 30 * second, "t"}, look{4 * second, 28 * second, "t"}),
		Entry("not for a new holder", never, look{0, 20 * second, "t"}, look{4 * second, 30 * second, "u"}),
		Entry("not without an expiry", never, look{0, -1, "t"}, look{4 * second, -1, "t"}),
	)
})
