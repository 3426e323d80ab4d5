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

// Release releases locks, in this order.
func Release(ctx context.Context, locks ...*redislock.Lock) {
	GinkgoHelper()
	for _, lock := range locks {
		Expect(lock.Release(ctx)).To(Succeed())
	}
}

// Refused expects that another holds one of the keys.
func Refused(ctx context.Context, locks *redislock.Client, opt *redislock.Options, keys ...string) {
	GinkgoHelper()
	_, err := locks.ObtainMulti(ctx, keys, time.Minute, opt)
	Expect(err).To(MatchError(redislock.ErrNotObtained))
}

// Refusal returns the RefusedError in an error.
func Refusal(err error) *redislock.RefusedError {
	GinkgoHelper()
	var refused *redislock.RefusedError
	Expect(errors.As(err, &refused)).To(BeTrue(), "%v is a *RefusedError", err)
	return refused
}

// LostKeys returns the keys of a LostError.
func LostKeys(err error) []string {
	GinkgoHelper()
	var lost *redislock.LostError
	Expect(errors.As(err, &lost)).To(BeTrue(), "%v is a *LostError", err)
	return lost.Keys
}
