package spec

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// Inboxes is what the names of all channels begin with on which waiters get messages.
const Inboxes = "redislock:inbox:"

// Line returns the ids of those who have a position in the line of a key, the first of them first.
func Line(ctx context.Context, client redis.Cmdable, key string) []string {
	entries := client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: LineKey(key), Start: 0, Stop: "+inf", ByScore: true}).Val()
	for i, entry := range entries {
		entries[i], _, _ = strings.Cut(entry, " ")
	}
	return entries
}

// LineKey returns the key of the line of a lock key.
func LineKey(key string) string {
	if strings.Contains(key, "{") {
		return key + ":redislock:line"
	}
	return key + "{" + key + "}:redislock:line"
}

// AwaitWaiter waits until somebody has a position in the line of a key, and has said that the subscription is open.
func AwaitWaiter(ctx context.Context, client redis.Cmdable, key string) {
	GinkgoHelper()
	Eventually(func() []string { return Line(ctx, client, key) }).WithTimeout(5 * time.Second).ShouldNot(BeEmpty())
	AwaitSubscriptions(ctx, client, key)
}

// Wake makes the waiter at a position in the line of a key try now, as a release does.
func Wake(ctx context.Context, client redis.Cmdable, key string, position int) {
	GinkgoHelper()
	inbox, number, _ := strings.Cut(Line(ctx, client, key)[position], "/")
	Expect(client.Publish(ctx, Inboxes+inbox, number).Err()).To(Succeed())
}

// AwaitSubscriptions waits until all inboxes in line for a key have said that their subscription is open.
func AwaitSubscriptions(ctx context.Context, client redis.Cmdable, key string) {
	GinkgoHelper()
	Eventually(func() (closed int) {
		for _, mark := range client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{
			Key: LineKey(key), Start: "-inf", Stop: "(0", ByScore: true,
		}).Val() {
			if member, _ := mark.Member.(string); strings.HasPrefix(member, "~") { // others say what a waiter would share
				closed += 1 - int(-mark.Score)%2
			}
		}
		return closed
	}).WithTimeout(5 * time.Second).Should(BeZero())
}

// Waiter is an obtain in line, in a goroutine of its own.
type Waiter struct {
	Cancel context.CancelFunc
	Done   chan struct{} // closed when the obtain has returned; what follows may be read then
	Lock   *redislock.Lock
	Err    error
	At     time.Time
}

// StartWaiter starts an obtain in line, and returns when the waiter has its position.
func StartWaiter(
	ctx context.Context, locks *redislock.Client, ttl time.Duration, opt *redislock.Options, keys ...string,
) *Waiter {
	GinkgoHelper()
	before := CountWaiters(ctx, locks, keys[0])
	w := &Waiter{Done: make(chan struct{})}
	ctx, w.Cancel = context.WithCancel(ctx)
	DeferCleanup(w.Cancel)
	go func() { // ends with the spec at the latest
		defer close(w.Done)
		w.Lock, w.Err = locks.ObtainMulti(ctx, keys, ttl, opt)
		w.At = time.Now()
	}()
	Eventually(func() int { return CountWaiters(context.WithoutCancel(ctx), locks, keys[0]) }).WithTimeout(5 * time.Second).
		WithPolling(time.Millisecond).Should(Equal(before + 1))
	return w
}

// CountWaiters returns how many wait for a key.
func CountWaiters(ctx context.Context, locks *redislock.Client, key string) int {
	GinkgoHelper()
	statuses, err := locks.Inspect(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	return statuses[0].Waiters
}

// Granted waits for the grant, and returns the lock.
func (w *Waiter) Granted() *redislock.Lock {
	GinkgoHelper()
	Eventually(w.Done).WithTimeout(10 * time.Second).Should(BeClosed())
	Expect(w.Err).NotTo(HaveOccurred())
	return w.Lock
}

// Over waits for the end of an obtain that gets no lock, and returns its error.
func (w *Waiter) Over() error {
	GinkgoHelper()
	Eventually(w.Done).WithTimeout(10 * time.Second).Should(BeClosed())
	Expect(w.Lock).To(BeNil())
	return w.Err
}

// Mark is the score of the mark of an inbox.
func Mark(deadline time.Time, life int64, open bool) float64 {
	score := deadline.UnixMilli()*4096 + life*2
	if open {
		score++
	}
	return -float64(score)
}

// OnlyWoken makes a waiter that no keys are handed to: it has to try when it is woken.
var OnlyWoken = &redislock.Options{Queue: true, Metadata: strings.Repeat("m", 1025)}
