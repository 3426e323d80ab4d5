package redislock

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
)

// inbox is where the scripts wake the waiters of one Client: one Redis channel, with one subscription, for all of them.
// Its goroutine starts with the first waiter that is refused and ends some time after the last has gone.
type inbox struct {
	node   *node
	linger time.Duration // how long the subscription outlives the last waiter

	mu      sync.Mutex // protects what follows
	name    string     // ends the channel's; random; "" before the first waiter
	count   int        // waiters so far
	waiters map[string]*waiter
	stop    context.CancelFunc // ends the listening; nil while nobody listens
	open    bool               // messages arrive
	last    *time.Timer        // ends the listening when it fires; nil while somebody waits
	closed  bool
}

const (
	// inboxPrefix begins the names of the channels. The scripts have it too.
	inboxPrefix = keyname.InboxPrefix

	// inboxLinger is how long a Client goes on listening after its last waiter: the next one may come soon.
	inboxLinger = 10 * time.Second

	// inboxQuiet is how long a subscription may be silent before it is asked whether it lives.
	inboxQuiet = time.Second

	// inboxRefused is how long to wait before subscribing again where Redis has refused to.
	inboxRefused = 10 * time.Second
)

func newInbox(n *node) *inbox {
	return &inbox{node: n, linger: inboxLinger, waiters: map[string]*waiter{}}
}

// hears reports whether messages arrive, as far as is known.
func (b *inbox) hears() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// waiting returns how many waiters there are.
func (b *inbox) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiters)
}

// enter gives the waiter a number, under which it is woken from now on.
func (b *inbox) enter(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.name == "" {
		b.name = randomToken()
	}
	b.count++
	w.number = strconv.Itoa(b.count)
	w.id = b.name + "/" + w.number
	b.waiters[w.number] = w
	if b.last != nil {
		b.last.Stop()
		b.last = nil
	}
}

// leave makes the inbox forget the waiter.
func (b *inbox) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, w.number)
	if len(b.waiters) == 0 && b.stop != nil {
		b.last = time.AfterFunc(b.linger, b.rest)
	}
}

// listen begins to listen, unless that was begun before. It does not block.
func (b *inbox) listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop == nil && !b.closed && b.node.subscribe != nil {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(context.Background())
		go b.run(ctx, inboxPrefix+b.name) // ends with ctx
	}
}

// rest ends the listening if nobody waits.
func (b *inbox) rest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiters) == 0 {
		b.halt()
	}
}

// close ends the listening for good.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.halt()
}

// halt ends the listening. b.mu is held.
func (b *inbox) halt() {
	if b.last != nil {
		b.last.Stop()
		b.last = nil
	}
	if b.stop != nil {
		b.stop()
		b.stop, b.open = nil, false
	}
}

// run subscribes, and wakes who is named, until ctx ends; whenever the subscription breaks, it makes a new one.
func (b *inbox) run(ctx context.Context, channel string) {
	for ctx.Err() == nil {
		err := b.receive(ctx, channel)
		b.setOpen(ctx, false)
		wait := jittered(time.Second)
		if isRedisError(err) && !isPassing(err) {
			wait = inboxRefused
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// receive is run for as long as one subscription lives.
func (b *inbox) receive(ctx context.Context, channel string) error {
	subscription := b.node.subscribe(ctx)
	defer subscription.Close()
	// go-redis does not interrupt a read when ctx ends, but when the subscription is closed.
	forget := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer forget()
	if err := subscription.Subscribe(ctx, channel); err != nil {
		return err
	}
	asked := false
	for {
		message, err := subscription.ReceiveTimeout(ctx, inboxQuiet)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout() && !asked:
			asked = true
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		asked = false
		switch message := message.(type) {
		case *redis.Subscription: // what was published before is lost, so whoever waits has to look
			b.setOpen(ctx, true)
			b.wakeAll()
		case *redis.Message:
			b.wake(message.Payload)
		}
	}
}

// setOpen notes whether messages arrive, unless the listening of ctx is over.
func (b *inbox) setOpen(ctx context.Context, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() == nil {
		b.open = open
	}
}

func (b *inbox) wake(number string) {
	b.mu.Lock()
	w := b.waiters[number]
	b.mu.Unlock()
	if w != nil {
		w.wake()
	}
}

func (b *inbox) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.waiters {
		w.wake()
	}
}
