package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
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
		err := locks.Do(ctx, keys, 1500*time.Millisecond, nil, func(kept context.Context) error {
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
		if _, adapted := errors.AsType[adapter.ReplyError](err); !adapted {
			Expect(redis.IsMasterDownError(err)).To(BeTrue())
		}
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

var _ = spec.DescribeOnRedis("Do inside Do", func(on *spec.Redis) {
	var locks *redislock.Client
	errWork := errors.New("the work failed")
	nothing := func(context.Context) error { return nil }
	// values are the tokens under the keys.
	values := func(ctx context.Context, keys ...string) []any { return on.Client.MGet(ctx, keys...).Val() }

	BeforeEach(func() {
		locks = redislock.New(on.Client)
		DeferCleanup(locks.Close)
	})

	for _, how := range []struct {
		name string
		opt  *redislock.Options
	}{
		{"with one try", nil},
		{"in line", &redislock.Options{Queue: true}},
		{"with the same token", &redislock.Options{Token: "me"}},
	} {
		Context(how.name, func() {
			It("neither acquires nor releases the keys of the outer one", func(ctx SpecContext) {
				called := false
				calls := spec.CountCalls(on.Client)
				Expect(locks.Do(ctx, []string{"a", "b"}, time.Minute, how.opt, func(outer context.Context) error {
					before := calls.Count()
					Expect(locks.Do(outer, []string{"b", "a"}, time.Minute, how.opt, func(inner context.Context) error {
						called = true
						return inner.Err()
					})).To(Succeed())
					Expect(calls.Count()).To(Equal(before), "nothing is sent")
					Expect(on.Keys(ctx)).To(ContainElements("a", "b"))
					return outer.Err()
				})).To(Succeed())
				Expect(called).To(BeTrue())
				Expect(on.Keys(ctx)).To(BeEmpty())
			})

			It("acquires missing keys as a lock of their own, and releases only these", func(ctx SpecContext) {
				Expect(locks.Do(ctx, []string{"a", "b"}, time.Minute, how.opt, func(outer context.Context) error {
					before := values(ctx, "a", "b")
					Expect(locks.Do(outer, []string{"b", "c"}, time.Minute, how.opt, func(context.Context) error {
						Expect(values(ctx, "a", "b")).To(Equal(before))
						Expect(values(ctx, "c")).NotTo(ContainElement(BeNil()))
						return nil
					})).To(Succeed())
					Expect(values(ctx, "a", "b")).To(Equal(before))
					Expect(values(ctx, "c")).To(ConsistOf(BeNil()))
					return nil
				})).To(Succeed())
				Expect(on.Keys(ctx)).To(BeEmpty())
			})

			It("works three deep", func(ctx SpecContext) {
				Expect(locks.Do(ctx, []string{"a"}, time.Minute, how.opt, func(first context.Context) error {
					return locks.Do(first, []string{"a", "b"}, time.Minute, how.opt, func(second context.Context) error {
						before := values(ctx, "a", "b")
						err := locks.Do(second, []string{"a", "b", "c"}, time.Minute, how.opt, func(context.Context) error {
							Expect(values(ctx, "a", "b")).To(Equal(before))
							Expect(values(ctx, "c")).NotTo(ContainElement(BeNil()))
							return errWork
						})
						Expect(err).To(BeIdenticalTo(errWork))
						Expect(values(ctx, "a", "b", "c")).To(Equal(append(before, nil)))
						return nil
					})
				})).To(Succeed())
				Expect(on.Keys(ctx)).To(BeEmpty())
			})
		})
	}

	It("is refused if another holder has a missing key, and does not call fn", func(ctx SpecContext) {
		spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "c")
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			Expect(locks.Do(outer, []string{"a", "c"}, time.Minute, nil, func(context.Context) error {
				Fail("fn was called")
				return nil
			})).To(BeIdenticalTo(redislock.ErrNotObtained))
			Expect(values(ctx, "a")).NotTo(ContainElement(BeNil()))
			return nil
		})).To(Succeed())
	})

	It("does not re-enter a lock of another Client", func(ctx SpecContext) {
		other := redislock.New(on.Client)
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			Expect(other.Do(outer, []string{"a"}, time.Minute, nil, nothing)).To(BeIdenticalTo(redislock.ErrNotObtained))
			return other.Do(outer, []string{"b"}, time.Minute, nil, func(theirs context.Context) error {
				return locks.Do(theirs, []string{"a"}, time.Minute, nil, nothing)
			})
		})).To(Succeed())
	})

	It("still checks its arguments", func(ctx SpecContext) {
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			Expect(locks.Do(outer, []string{"a"}, time.Millisecond, nil, nothing)).To(MatchError(redislock.ErrInvalid))
			Expect(locks.Do(outer, nil, time.Minute, nil, nothing)).To(MatchError(redislock.ErrInvalid))
			Expect(locks.Do(outer, []string{"a"}, time.Minute, nil, nil)).To(MatchError(redislock.ErrInvalid))
			ended, cancel := context.WithCancel(outer)
			cancel()
			err := locks.Do(ended, []string{"a"}, time.Minute, nil, nothing)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(context.Canceled))
			Expect(locks.Close()).To(Succeed())
			Expect(locks.Do(context.WithoutCancel(outer), []string{"a"}, time.Minute, nil, nothing)).To(Equal(redislock.ErrClosed))
			return nil
		})).To(Succeed())
	})

	DescribeTable("returns the loss of an outer lock that it relies on", func(ctx SpecContext, keys ...string) {
		err := locks.Do(ctx, []string{"a", "b"}, 600*time.Millisecond, nil, func(outer context.Context) error {
			err := locks.Do(outer, keys, time.Minute, nil, func(inner context.Context) error {
				on.Client.Del(ctx, "b")
				Eventually(inner.Done()).Should(BeClosed())
				Expect(spec.LostKeys(context.Cause(inner))).To(Equal([]string{"b"}))
				return nil
			})
			Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
			return errWork
		})
		Expect(err).To(MatchError(errWork))
		Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
		Expect(on.Keys(ctx)).To(BeEmpty(), "all that was left is released")
	},
		Entry("for all of its keys", "a", "b"),
		Entry("for some of its keys", "a", "c"),
	)

	It("ends when an outer lock is lost, and does not return that loss if it does not rely on it", func(ctx SpecContext) {
		err := locks.Do(ctx, []string{"a"}, 1500*time.Millisecond, nil, func(outer context.Context) error {
			err := locks.Do(outer, []string{"c"}, time.Minute, nil, func(inner context.Context) error {
				on.Client.Del(ctx, "a")
				Eventually(inner.Done()).Should(BeClosed())
				return errWork
			})
			Expect(err).To(BeIdenticalTo(errWork))
			return nil
		})
		Expect(err).To(MatchError(redislock.ErrLockNotHeld))
	})

	It("returns the loss of its own lock, and leaves the outer one alone", func(ctx SpecContext) {
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			err := locks.Do(outer, []string{"a", "c"}, 1500*time.Millisecond, nil, func(inner context.Context) error {
				on.Client.Del(ctx, "c")
				Eventually(inner.Done()).Should(BeClosed())
				Expect(outer.Err()).NotTo(HaveOccurred())
				return nil
			})
			Expect(err).To(MatchError(redislock.ErrLockNotHeld))
			return nil
		})).To(Succeed())
	})

	It("ends when the Client is closed", func(ctx SpecContext) {
		err := locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			return locks.Do(outer, []string{"a"}, time.Minute, nil, func(inner context.Context) error {
				Expect(locks.Close()).To(Succeed())
				Expect(inner.Err()).To(HaveOccurred())
				return context.Cause(inner)
			})
		})
		Expect(err).To(BeIdenticalTo(redislock.ErrClosed))
	})

	Context("when its ctx does not end with that of the outer one", func() {
		It("still ends with the outer one", func(ctx SpecContext) {
			ended := make(chan error)
			Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
				began := make(chan struct{})
				go func() {
					ended <- locks.Do(context.WithoutCancel(outer), []string{"a", "c"}, time.Minute, nil, func(inner context.Context) error {
						close(began)
						<-inner.Done()
						return context.Cause(inner)
					})
				}()
				<-began
				return nil
			})).To(Succeed())
			Eventually(ended).Should(Receive(MatchError(context.Canceled)))
			Eventually(func() []string { return on.Keys(ctx) }).Should(BeEmpty())
		})

		It("acquires all of its keys again once the outer one has ended", func(ctx SpecContext) {
			var late context.Context
			Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
				late = outer
				return nil
			})).To(Succeed())
			err := locks.Do(late, []string{"a"}, time.Minute, nil, nothing)
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(context.Canceled))
			theirs := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "a")
			late = context.WithoutCancel(late)
			Expect(locks.Do(late, []string{"a"}, time.Minute, nil, nothing)).To(BeIdenticalTo(redislock.ErrNotObtained))
			Expect(theirs.Release(ctx)).To(Succeed())
			Expect(locks.Do(late, []string{"a"}, time.Minute, nil, func(inner context.Context) error {
				Expect(on.Keys(ctx)).To(ConsistOf("a"))
				return inner.Err()
			})).To(Succeed())
			Expect(on.Keys(ctx)).To(BeEmpty())
		})
	})

	DescribeTable("does not call fn if the outer one ends while it waits for a missing key", func(ctx SpecContext, opt *redislock.Options) {
		theirs := spec.Obtain(ctx, redislock.New(on.Client), time.Minute, nil, "c")
		ended := make(chan error)
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			waiting := context.WithoutCancel(outer)
			go func() {
				ended <- locks.Do(waiting, []string{"a", "c"}, time.Minute, opt, func(context.Context) error { return errWork })
			}()
			time.Sleep(50 * time.Millisecond)
			return nil
		})).To(Succeed())
		Expect(theirs.Release(ctx)).To(Succeed())
		var err error
		Eventually(ended).WithTimeout(3 * time.Second).Should(Receive(&err))
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.Canceled))
		Expect(err).NotTo(MatchError(errWork))
		Eventually(on.Keys).WithArguments(ctx).Should(BeEmpty(), "the hand-off that came too late is given back")
	},
		Entry("polling", &redislock.Options{RetryStrategy: redislock.LinearBackoff(20 * time.Millisecond)}),
		Entry("in line", &redislock.Options{Queue: true}),
	)

	It("finds the outer one through any ctx derived from it", func(ctx SpecContext) {
		type mark struct{}
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			for _, derive := range []func(context.Context) (context.Context, context.CancelFunc){
				context.WithCancel,
				func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				},
				func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithValue(struct{ context.Context }{ctx}, mark{}, 1), func() {}
				},
			} {
				derived, cancel := derive(outer)
				Expect(locks.Do(derived, []string{"a"}, time.Minute, nil, nothing)).To(Succeed())
				cancel()
			}
			return nil
		})).To(Succeed())
	})

	It("excludes goroutines of one outer Do from each other on the keys that it does not hold", func(ctx SpecContext) {
		const goroutines = 20
		inside, done := 0, 0
		line := &redislock.Options{Queue: true}
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			var group sync.WaitGroup
			errs := make(chan error, goroutines)
			for range goroutines {
				group.Go(func() {
					errs <- locks.Do(outer, []string{"a", "c"}, time.Minute, line, func(inner context.Context) error {
						inside++ // the race detector watches as well
						if inside != 1 {
							return errWork
						}
						err := locks.Do(inner, []string{"c", "a"}, time.Minute, line, func(context.Context) error {
							time.Sleep(time.Millisecond)
							return nil
						})
						done++
						inside--
						return err
					})
				})
			}
			group.Wait()
			for range goroutines {
				Expect(<-errs).To(Succeed())
			}
			return nil
		})).To(Succeed())
		Expect(done).To(Equal(goroutines))
		Expect(on.Keys(ctx)).To(BeEmpty())
	})

	It("leaves nothing behind, however its goroutines and the outer one end", func(ctx SpecContext) {
		var group sync.WaitGroup
		for i := range 30 {
			group.Go(func() {
				defer func() { _ = recover() }()
				key := strconv.Itoa(i % 3)
				_ = locks.Do(ctx, []string{key, "x" + strconv.Itoa(i)}, time.Minute, &redislock.Options{Queue: true}, func(outer context.Context) error {
					for j := range 3 {
						group.Go(func() {
							defer func() { _ = recover() }()
							through := outer
							if j == 0 {
								through = context.WithoutCancel(outer)
							}
							limited, cancel := context.WithTimeout(through, 500*time.Millisecond)
							defer cancel()
							_ = locks.Do(limited, []string{key, "y"}, time.Minute, &redislock.Options{Queue: true}, func(inner context.Context) error {
								time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
								if j == 1 {
									panic("at the disco")
								}
								return inner.Err()
							})
						})
					}
					time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
					if i%4 == 0 {
						panic("at the disco")
					}
					return nil
				})
			})
		}
		group.Wait()
		Eventually(on.Keys).WithArguments(ctx).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("releases its own keys when its fn panics", func(ctx SpecContext) {
		Expect(locks.Do(ctx, []string{"a"}, time.Minute, nil, func(outer context.Context) error {
			Expect(func() {
				_ = locks.Do(outer, []string{"a", "c"}, time.Minute, nil, func(context.Context) error { panic("at the disco") })
			}).To(PanicWith("at the disco"))
			Expect(on.Keys(ctx)).To(ConsistOf("a"))
			return nil
		})).To(Succeed())
	})
})
