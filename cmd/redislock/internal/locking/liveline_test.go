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
		took    time.Duration // the answer
	}

	at := func(at, ttl time.Duration) look { return look{at: at, ttl: ttl, token: "t"} }

	DescribeTable("tells from the ttls of several looks how long ago a key was renewed",
		func(since time.Duration, looks ...look) {
			start, r := time.Now(), renewals{}
			for _, l := range looks {
				blocked := []*redislock.RefusedError{{Key: "a", Token: l.token, TTL: l.ttl}}
				r.see(Obstacles{Blocked: blocked, Asked: start.Add(l.at - l.took)}, start.Add(l.at))
			}
			Expect(r.since("a", start.Add(5*second))).To(Equal(since))
		},
		Entry("not from one look", never, at(0, 30*second)),
		Entry("not while the ttl runs out", never, at(0, 30*second), at(second, 29*second)),
		Entry("not from an answer that was late", never,
			at(0, 30*second), look{at: second, ttl: 29500 * time.Millisecond, token: "t", took: second / 2}),
		Entry("at the look that has the longest ttl", second, at(0, 20*second), at(4*second, 30*second)),
		Entry("as long before a look as the ttl is shorter than the longest", 3*second/2,
			at(0, 30*second), at(3*second, 27*second), at(4*second, 29500*time.Millisecond)),
		Entry("not before the look that did not see it", 2*second,
			at(0, 30*second), at(3*second, 10*second), at(4*second, 20*second)),
		Entry("of a ttl that is shorter than the time between looks", second,
			at(0, 300*time.Millisecond), at(4*second, 300*time.Millisecond)),
		Entry("still, when the ttl runs out again", 3*second,
			at(0, 20*second), at(2*second, 30*second), at(4*second, 28*second)),
		Entry("not for a new holder", never, at(0, 20*second), look{at: 4 * second, ttl: 30 * second, token: "u"}),
		Entry("not without an expiry", never, at(0, -1), at(4*second, -1)),
	)
})
