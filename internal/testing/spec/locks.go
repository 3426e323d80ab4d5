package spec

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock"
)

// Soon is how long a call may take to return after its ctx has ended. It takes a few milliseconds; the rest is for busy
// machines. The client's own timeouts are longer.
const Soon = time.Second

// Within returns a ctx that ends after d.
func Within(ctx context.Context, d time.Duration) context.Context {
	limited, cancel := context.WithTimeout(ctx, d)
	DeferCleanup(cancel)
	return limited
}

// BeTooLate matches the error of an obtain whose grant came too late.
var BeTooLate = And(MatchError(redislock.ErrNotObtained), MatchError(redislock.ErrLapsed),
	MatchError(MatchRegexp(`^redislock: not obtained: the grant took [\d.]+m?s to arrive, and the ttl is [\d.]+m?s$`)))

// Countdown is a strategy of a caller's own, which cannot be started afresh.
type Countdown struct{ Left int }

// NextBackoff is part of [redislock.RetryStrategy].
func (c *Countdown) NextBackoff() time.Duration {
	if c.Left--; c.Left < 0 {
		return 0
	}
	return time.Millisecond
}

// Obtain obtains a lock that the spec needs.
func Obtain(
	ctx context.Context, locks *redislock.Client, ttl time.Duration, opt *redislock.Options, keys ...string,
) *redislock.Lock {
	GinkgoHelper()
	lock, err := locks.ObtainMulti(ctx, keys, ttl, opt)
	Expect(err).NotTo(HaveOccurred())
	return lock
}

// LostKeys returns the keys of a LostError.
func LostKeys(err error) []string {
	GinkgoHelper()
	var lost *redislock.LostError
	Expect(errors.As(err, &lost)).To(BeTrue(), "%v is a *LostError", err)
	return lost.Keys
}
