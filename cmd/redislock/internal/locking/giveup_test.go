package locking

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/bubble"
)

// serverError is an error that a server has answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var _ redis.Error = serverError("")

const errNotNow = serverError("NOREPLICAS Not enough good replicas to write.")

// insisting counts the tries of an Insist that ends after a while, and what it tells. Each try takes a millisecond.
type insisting struct {
	tries int
	told  []error
	took  time.Duration
}

func (i *insisting) run(t *testing.T, limit time.Duration, try func(n int) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	defer func() { i.took = time.Since(began) }()
	return Insist(ctx, func(context.Context) error {
		i.tries++
		time.Sleep(time.Millisecond)
		return try(i.tries)
	}, func(why error) { i.told = append(i.told, why) })
}

func TestInsistUntilItSucceeds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g, i := NewWithT(t), new(insisting)
		g.Expect(i.run(t, time.Minute, func(n int) error {
			if n < 20 {
				return errNotNow
			}
			return nil
		})).To(Succeed())
		g.Expect(i.tries).To(Equal(20))
		g.Expect(i.told).To(Equal([]error{errNotNow}))
		g.Expect(i.took).To(BeNumerically("<", 20*longestAgain))
	})
}

func TestInsistUntilItsEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g, i := NewWithT(t), new(insisting)
		g.Expect(i.run(t, 10*time.Second, func(int) error { return syscall.ECONNREFUSED })).To(MatchError(syscall.ECONNREFUSED))
		g.Expect(i.took).To(Equal(10 * time.Second))
		g.Expect(i.tries).To(BeNumerically("~", 23, 2))
	})
}

func TestInsistOnNothingThatIsFinal(t *testing.T) {
	for _, final := range []error{
		redislock.ErrLockNotHeld, redislock.ErrNotObtained, redislock.ErrInvalid, serverError("NOPERM this user has no permissions"),
	} {
		bubble.Test(t, func(t *testing.T) {
			g, i := NewWithT(t), new(insisting)
			g.Expect(i.run(t, time.Minute, func(int) error { return final })).To(MatchError(final))
			g.Expect(i.tries).To(Equal(1))
			g.Expect(i.told).To(BeEmpty())
		})
	}
}

// A try that is under way when the time is over may still succeed, if that does not take long.
func TestInsistGivesTheLastTryAMoment(t *testing.T) {
	for takes, err := range map[time.Duration]error{lastAnswer - time.Millisecond: nil, time.Hour: errSilent} {
		bubble.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began := time.Now()
			got := Insist(ctx, func(ctx context.Context) error {
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}, func(error) {})
			if err == nil {
				g.Expect(got).To(Succeed())
			} else {
				g.Expect(got).To(MatchError(err))
			}
			g.Expect(time.Since(began)).To(BeNumerically("<=", lastAnswer))
		})
	}
}

func TestUnreleasedError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		now := time.Now()
		var many []string
		for i := range 12 {
			many = append(many, strconv.Itoa(i))
		}
		for _, test := range []struct {
			by   time.Time
			keys []string
			text string
		}{
			{now.Add(time.Minute), []string{"a"},
				`cannot release "a", which expires by ` + now.Add(time.Minute).Format(time.TimeOnly) + ` (in 1m00s): why`},
			{now.Add(time.Minute), []string{"a", "b"},
				`cannot release "a", "b", which expire by ` + now.Add(time.Minute).Format(time.TimeOnly) + ` (in 1m00s): why`},
			{now.Add(48 * time.Hour), []string{"a"},
				`cannot release "a", which expires by ` + now.Add(48*time.Hour).Format(time.DateTime) + ` (in 2d00h): why`},
			{now, []string{"a"}, `cannot release "a", which has expired by now: why`},
			{time.Time{}, []string{"a", "b"}, `cannot release "a", "b", which expire at the end of their ttl: why`},
			{now.Add(290 * 365 * 24 * time.Hour), []string{"a"}, `cannot release "a", which has no expiry: why`},
			{now, many, `cannot release "` + strings.Join(many[:10], `", "`) + `" and 2 more, which have expired by now: why`},
		} {
			err := &UnreleasedError{Keys: test.keys, By: test.by, Err: errors.New("why")}
			NewWithT(t).Expect(err).To(MatchError(test.text))
		}
	})
}
