package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/spec"
)

// several is an error of a type that cannot be compared, as validators have it.
type several []error

func (s several) Error() string   { return errors.Join(s...).Error() }
func (s several) Unwrap() []error { return s }

// wrapping is an error of a type that can be compared, with a value that cannot.
type wrapping struct{ inner any }

func (w wrapping) Error() string { return fmt.Sprint(w.inner) }

var _ = spec.DescribeOnRedis("Do", func(on *spec.Redis) {
	var locks *redislock.Client
	keys := []string{"a", "b"}
	errWork := errors.New("the work failed")

	BeforeEach(func() {
		locks = redislock.New(on.Client)
	})

	It("runs fn under the lock, and releases it", func(ctx SpecContext) {
		err := locks.Do(ctx, keys, time.Minute, &redislock.Options{Metadata: "m"}, func(kept context.Context) error {
			Expect(kept.Err()).NotTo(HaveOccurred())
			Expect(on.Keys(kept)).To(ConsistOf("a", "b"))
			Expect(on.Client.Get(kept, "a").Val()).To(HaveSuffix(" m"))
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("keeps the lock for longer than its ttl", func(ctx SpecContext) {
		err := redislock.Do(ctx, on.Client, keys, 200*time.Millisecond, nil, func(kept context.Context) error {
			Consistently(kept.Err).WithTimeout(700 * time.Millisecond).Should(Succeed())
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
	})

	It("returns the error of fn as it is", func(ctx SpecContext) {
		err := locks.Do(ctx, keys, time.Minute, nil, func(context.Context) error { return errWork })
		Expect(err).To(BeIdenticalTo(errWork))
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("does not call fn without the lock", func(ctx SpecContext) {
		spec.Obtain(ctx, locks, time.Minute, nil, "b")
		err := locks.Do(ctx, keys, time.Minute, nil, func(context.Context) error {
			Fail("fn was called")
			return nil
		})
		Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained))
	})

	It("refuses unusable arguments", func(ctx SpecContext) {
		Expect(locks.Do(ctx, keys, time.Minute, nil, nil)).To(MatchError(redislock.ErrInvalid))
		nothing := func(context.Context) error { return nil }
		Expect(locks.Do(ctx, nil, time.Minute, nil, nothing)).To(MatchError(redislock.ErrInvalid))
		Expect(locks.Do(nil, keys, time.Minute, nil, nothing)).To(MatchError(redislock.ErrInvalid)) //nolint:staticcheck // on purpose
		Expect(locks.Close()).To(Succeed())
		Expect(locks.Do(ctx, keys, time.Minute, nil, nothing)).To(Equal(redislock.ErrClosed))
	})

	DescribeTable("tells a loss, whatever fn returns", func(ctx SpecContext, result error) {
		err := locks.Do(ctx, keys, 200*time.Millisecond, nil, func(kept context.Context) error {
			on.Client.Del(ctx, "b")
			Eventually(kept.Done()).Should(BeClosed())
			return result
		})
		Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
		if result != nil {
			Expect(err).To(MatchError(result))
		}
		Expect(on.Keys(ctx)).To(BeEmpty(), "what was left is released")
	},
		Entry("nil", nil),
		Entry("an error", errors.New("the work failed")),
	)

	It("returns a loss that only the release finds", func(ctx SpecContext) {
		err := locks.Do(ctx, keys, time.Minute, nil, func(context.Context) error {
			on.Client.Del(ctx, "a", "b")
			return errWork
		})
		Expect(err).To(MatchError(errWork))
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("returns ErrLapsed with the error of Redis when renewals fail", func(ctx SpecContext) {
		proxy := on.NewProxy()
		proxied := redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr()}))
		proxy.Add(faultproxy.Rule{Match: spec.Running("refresh"), Action: faultproxy.RefuseReply("MASTERDOWN Link with MASTER is down")})
		err := proxied.Do(ctx, keys, 300*time.Millisecond, nil, func(kept context.Context) error {
			<-kept.Done()
			return fmt.Errorf("stopped: %w", kept.Err())
		})
		Expect(err).To(MatchError(ContainSubstring("stopped: context canceled")))
		Expect(err).To(MatchError(ContainSubstring(`ran out unrenewed: "a" and 1 more: MASTERDOWN`)))
		Expect(redis.IsMasterDownError(err)).To(BeTrue())
	})

	It("does not take the end of its own ctx for a loss", func(ctx SpecContext) {
		limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		err := locks.Do(limited, keys, time.Minute, nil, func(kept context.Context) error {
			<-kept.Done()
			return kept.Err()
		})
		Expect(err).To(BeIdenticalTo(context.DeadlineExceeded))
		Expect(on.Keys(ctx)).To(BeEmpty(), "released, though ctx has ended")
	})

	DescribeTable("releases when its ctx has ended with an error that cannot be compared", func(ctx SpecContext, cause error) {
		parent, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		err := locks.Do(parent, keys, time.Minute, nil, func(kept context.Context) error {
			cancel(cause)
			<-kept.Done()
			return errWork
		})
		Expect(err).To(BeIdenticalTo(errWork))
		Expect(on.Keys(ctx)).To(BeEmpty())
		_, err = locks.ObtainMulti(parent, keys, time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.Canceled))
	},
		Entry("a slice", several{errors.New("name is missing"), errors.New("age is negative")}),
		Entry("a slice inside of a struct", wrapping{several{errors.New("name is missing")}}),
		Entry("a slice that is a loss of another lock", several{redislock.ErrLockNotHeld}),
	)

	It("ends the ctx of fn when the Client is closed", func(ctx SpecContext) {
		err := locks.Do(ctx, keys, time.Minute, nil, func(kept context.Context) error {
			Expect(locks.Close()).To(Succeed())
			return context.Cause(kept)
		})
		Expect(err).To(BeIdenticalTo(redislock.ErrClosed))
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("returns the error of a release that failed after fn succeeded", func(ctx SpecContext) {
		proxy := on.NewProxy()
		proxied := redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr()}))
		proxy.Add(faultproxy.Rule{Match: spec.Running("release"), Action: faultproxy.RefuseReply("ERR broken")})
		err := proxied.Do(ctx, keys, time.Minute, nil, func(context.Context) error { return nil })
		Expect(err).To(MatchError(`redislock: release "a" and 1 more: ERR broken`))
		err = proxied.Do(ctx, []string{"c"}, time.Minute, nil, func(context.Context) error { return errWork })
		Expect(err).To(BeIdenticalTo(errWork))
	})

	It("releases when fn panics, and lets the panic go on", func(ctx SpecContext) {
		Expect(func() {
			_ = locks.Do(ctx, keys, time.Minute, nil, func(context.Context) error { panic("at the disco") })
		}).To(PanicWith("at the disco"))
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("releases when fn ends its goroutine", func(ctx SpecContext) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = locks.Do(ctx, keys, time.Minute, nil, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		Eventually(ended).Should(BeClosed())
		Expect(on.Keys(ctx)).To(BeEmpty())
	})
})
