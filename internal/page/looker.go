package page

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/survey"
)

const (
	// freshFor is for how long all requests see the same look at Redis, at least.
	freshFor = time.Second

	// share bounds how much of the time looks take: the next one comes that many times as long after the last one as it took.
	share = 9

	// lookLimit bounds one look.
	lookLimit = 30 * time.Second

	// maxLocks and maxWaiters are how many a look remembers.
	maxLocks   = 10_000
	maxWaiters = 50_000
)

// look is what one look at Redis has found.
type look struct {
	began, ended time.Time

	seen time.Time // when the rest was found; zero for never
	*survey.Finding
	locks []survey.Status // by key
	cut   bool            // there are more locks
	err   error           // then the rest is what the last good look has found, which may be nothing
}

// looker looks at Redis when somebody wants to see it, once for all who do at the same time. No goroutine of it runs while
// nobody looks.
type looker struct {
	redis *survey.Redis

	mu   sync.Mutex    // protects the fields below
	last *look         // nil before the first one
	busy chan struct{} // is closed at the end of the look that is under way; nil if none is
}

// look returns the last look, or waits for the next one if that is too old. It returns the error of the look, or of ctx if
// that ends first. After an error, it also returns what was seen last.
func (l *looker) look(ctx context.Context) (*look, error) {
	l.mu.Lock()
	if last := l.last; last != nil {
		took := last.ended.Sub(last.began)
		rest := max(freshFor, share*took)
		if last.err != nil { // Redis has little to do
			rest = freshFor
		}
		if l.busy == nil && time.Since(last.ended) < rest || l.busy != nil && took > freshFor {
			l.mu.Unlock()
			return last, last.err
		}
	}
	if l.busy == nil {
		l.busy = make(chan struct{})
		go l.renew(l.last, l.busy) // ends after lookLimit
	}
	busy := l.busy
	l.mu.Unlock()
	select {
	case <-busy:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.last.err
}

// renew looks at Redis, and then closes done. No request ends it: others may wait for it as well.
func (l *looker) renew(last *look, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	next := &look{began: time.Now()}
	defer func() {
		if hook := recover(); hook != nil { // of the Redis client
			next.err = fmt.Errorf("panic: %v", hook)
		}
		next.ended = time.Now()
		if next.err != nil && last != nil {
			next.seen, next.Finding, next.locks, next.cut = last.seen, last.Finding, last.locks, last.cut
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last, l.busy = next, nil
		close(done)
	}()
	next.err = next.fill(ctx, l.redis)
}

// fill looks for locks, and for who waits for whom.
func (k *look) fill(ctx context.Context, at *survey.Redis) error {
	masters, err := at.Masters(ctx)
	if err != nil {
		return err
	}
	k.began = time.Now() // what it has waited for servers that are down is no work for Redis
	here := *at
	here.Masters = func(context.Context) ([]redis.UniversalClient, error) { return masters, nil }
	scan := survey.Scan{Redis: &here, Found: func(s survey.Status) error {
		if len(k.locks) == 2*maxLocks { // SCAN may return a key twice
			k.cut = true
			return survey.ErrEnough
		}
		k.locks = append(k.locks, s)
		return nil
	}}
	if err := scan.Run(ctx); err != nil {
		return err
	}
	slices.SortFunc(k.locks, func(a, b survey.Status) int { return strings.Compare(a.Key, b.Key) })
	k.locks = slices.CompactFunc(k.locks, func(a, b survey.Status) bool { return a.Key == b.Key })
	if len(k.locks) > maxLocks {
		k.locks, k.cut = k.locks[:maxLocks], true
	}
	trees := survey.Trees{Redis: &here, Limit: maxWaiters}
	found, err := trees.Find(ctx)
	if err != nil {
		return err
	}
	if found.Why == nil {
		found.Unreadable, found.Why = scan.Unreadable, scan.Why
	}
	k.seen, k.Finding = k.began, found
	return nil
}
