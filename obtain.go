package redislock

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"slices"
	"time"
)

//go:embed obtain.lua
var obtainSource string

var obtainScript = newScript("obtain", withLine(obtainSource))

// obtaining is one Obtain with all its tries. It belongs to one goroutine.
type obtaining struct {
	client   *Client
	keys     []string
	boxed    []any // the keys and their lines; see box
	fenceKey string
	ttl      time.Duration
	metadata string
	custom   bool // the token is the caller's own

	token    string
	waiter   *waiter // nil if it does not wait in line
	doubtful bool    // a sending of the present token may have been executed unknown to us
	first    call    // the first try
	adrift   []*call // tries that went on although nobody waited for them any longer
	lock     *Lock
}

// obtain is ObtainMulti for keys that are the library's own slice.
func (c *Client) obtain(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	o := &obtaining{client: c, keys: keys, ttl: ttl}
	if err := o.prepare(ctx, opt); err != nil {
		return nil, err
	}
	strategy := opt.strategy()
	if o.waiter != nil {
		o.waiter.pace = strategy
		defer o.waiter.leave()
	} else if strategy != nil {
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, ttl)
			defer cancel()
		}
	}
	if o.custom {
		if err := c.supersede(ctx, o.token, keys); err != nil {
			return nil, err
		}
	}
	var cut bool
	var err error
	if o.waiter != nil {
		cut, err = o.inLine(ctx)
	} else {
		cut, err = retry(ctx, c.closed, strategy, time.Time{}, func() (bool, error) { return o.try(ctx) })
	}
	if err == nil {
		return o.lock, nil
	}
	o.withdraw(ctx)
	if cut && err != ErrNotObtained {
		return nil, notObtained(fmt.Errorf("%w; the last try: %w", ended(ctx), err))
	} else if cut {
		return nil, notObtained(ended(ctx))
	}
	return nil, err
}

// prepare checks the arguments and takes over what opt says. It does no I/O.
func (o *obtaining) prepare(ctx context.Context, opt *Options) error {
	if err := o.client.usable(ctx, o.keys); err != nil {
		return err
	}
	if err := checkTTL(o.ttl); err != nil {
		return err
	}
	o.boxed = box(o.keys)
	if opt != nil {
		if err := checkToken(opt.Token); err != nil {
			return err
		}
		if err := checkFenceKey(opt.FenceKey, o.keys); err != nil {
			return err
		}
		o.metadata, o.token, o.custom, o.fenceKey = opt.Metadata, opt.Token, opt.Token != "", opt.FenceKey
		if opt.Queue {
			if err := checkLines(o.keys); err != nil {
				return err
			}
			o.waiter = newWaiter(o.client.inbox)
		}
	}
	if o.token == "" {
		o.token = randomToken()
	}
	return o.client.node.onOneShard("obtain", o.scripted())
}

// scripted returns all keys that have to be in one place.
func (o *obtaining) scripted() []string {
	if o.fenceKey == "" {
		return o.keys
	}
	return append(slices.Clone(o.keys), o.fenceKey)
}

// try asks once for all keys. It reports whether the answer was a refusal, after which another try makes sense.
func (o *obtaining) try(ctx context.Context) (again bool, err error) {
	if err := ended(ctx); err != nil {
		return false, notObtained(err)
	}
	if o.waiter != nil {
		done, err := o.waiter.admit(ctx, o.client.closed, len(o.keys))
		if err != nil {
			return false, err
		}
		defer done()
		if h := o.waiter.handedOver(); h != nil {
			return o.accept(ctx, h)
		}
	}
	c := &o.first
	if c.script != nil {
		c = new(call) // the first may be adrift
	}
	c.script, c.keys, c.boxed, c.fence, c.token = obtainScript, o.keys, o.boxed, o.fenceKey, o.token
	c.giveUp = time.Now().Add(o.ttl)
	var fenced any = "0" // a constant costs no allocation
	if o.fenceKey != "" {
		fenced = "1"
	}
	c.arguments(o.metadata, o.ttl.Milliseconds(), len(o.keys), fenced)
	c.simple = len(o.boxed) == 2 && len(o.keys) == 1 && o.fenceKey == "" && !o.custom && o.waiter.isNew()
	if o.waiter != nil {
		c.args, c.queues = o.waiter.begin(o, c.args), true
	}
	var cancel context.CancelFunc
	c.ctx, cancel = o.waiter.patience(ctx, len(o.adrift))
	defer cancel()
	if !o.client.node.do(c.ctx, c) {
		o.adrift = append(o.adrift, c)
		c = &call{err: errUnanswered}
	}
	o.doubtful = o.doubtful || c.doubtful
	if c.err != nil {
		if err := ended(ctx); err != nil {
			return false, notObtained(err)
		}
		return o.waiter.bear(c.err), failed("obtain", o.keys, explain(o.scripted(), c.err))
	}
	fence, taken, granted, err := o.read(c.reply)
	switch {
	case err != nil:
		return false, failed("obtain", o.keys, err)
	case !granted:
		if o.waiter != nil {
			o.waiter.refuse(c.sent, c.reply)
		}
		return true, ErrNotObtained
	}
	if o.waiter != nil && len(c.boxed) == len(o.keys) {
		o.leaveLines(ctx) // they could not be reached, so the script has not taken it out of them
	}
	return o.grant(ctx, c.sent, fence, taken)
}

// grant makes the lock that was granted after that time, unless it has lapsed by now. Like try, it reports whether another
// try makes sense.
func (o *obtaining) grant(ctx context.Context, since time.Time, fence int64, taken []string) (again bool, err error) {
	until := validUntil(since, o.ttl)
	if passed(until) {
		return o.decline(ctx, taken)
	}
	o.lock = &Lock{
		client: o.client, keys: o.keys, boxed: o.boxed, token: o.token, fence: fence, fenceKey: o.fenceKey, metadata: o.metadata,
		ttl: o.ttl, obtained: o.ttl, zombie: (o.doubtful || len(o.adrift) > 0) && !o.custom,
	}
	if o.lock.zombie && o.waiter.hasPlace() {
		o.lock.entry = o.waiter.entry
	}
	o.lock.setUntil(since, until)
	return false, nil
}

// read takes the reply of the script apart: the fencing token and the newly taken keys, if it is a grant.
func (o *obtaining) read(reply any) (fence int64, taken []string, granted bool, err error) {
	switch reply {
	case int64(0):
		return 0, nil, false, nil
	case int64(1):
		return 0, o.keys, true, nil
	}
	grant, _ := reply.([]any)
	if len(grant) == 0 {
		return 0, nil, false, unexpected(reply)
	}
	fence, _ = grant[0].(int64)
	switch {
	case fence == -1: // a place in line
		return 0, nil, false, nil
	case len(grant) == 1:
		return fence, o.keys, true, nil
	}
	held := make(map[int64]bool, len(grant)-1)
	for _, entry := range grant[1:] {
		index, _ := entry.(int64)
		held[index] = true
	}
	for i, key := range o.keys {
		if !held[int64(i+1)] {
			taken = append(taken, key)
		}
	}
	return fence, taken, true, nil
}

// decline gives back a grant whose reply came too late to be relied on. That counts as a refusal.
//
// With a random token, the next try takes another one: what is left of this one can then be released at leisure, and no
// release can hit a later grant. All keys are, for the grant may have been for a resend whose first sending took them. A
// token of the caller's own stays, so the release must have been answered before the next try; if it was not, there is
// none.
func (o *obtaining) decline(ctx context.Context, taken []string) (again bool, err error) {
	if o.waiter != nil {
		o.waiter.next = time.Now().Add(time.Millisecond)
	}
	if !o.custom {
		back := newRelease(ctx, o.token, o.keys, o.boxed)
		if o.waiter != nil { // a try that is still on its way may enter the lines again, with the token of before
			back.args = append(back.args, o.waiter.entry)
			o.waiter.renew()
		}
		o.client.sweep(back, o.ttl, 0)
		o.token, o.doubtful = randomToken(), false
		return true, ErrNotObtained
	}
	if len(taken) == 0 {
		return true, ErrNotObtained
	}
	back := newRelease(ctx, o.token, taken, box(taken))
	back.giveUp = time.Now().Add(o.ttl)
	if !o.client.node.do(ctx, back) {
		o.client.persist(back)
		return false, notObtained(ended(ctx))
	}
	if back.err != nil {
		return false, failed("obtain", o.keys, back.err)
	}
	return !back.doubtful, ErrNotObtained
}

// withdraw sees to what is left of an obtain that has ended without a lock, in the background: what it has taken, or was
// handed, after all is released, and its place in line given up. That is done at once for a waiter, and once more for all
// when the tries that are adrift have ended, lest it overtake what it undoes. Where there is no room for one more cleanup,
// the ttl of the keys and the silence of the waiter see to it.
func (o *obtaining) withdraw(ctx context.Context) {
	if o.waiter.hasPlace() { // at once: it might be handed the keys until then
		o.leave(ctx)
	}
	if len(o.adrift) == 0 && (!o.doubtful || o.custom) {
		return
	}
	x := &cleanup{release: newRelease(ctx, o.token, o.keys, o.boxed), keys: o.keys}
	o.client.inBackground(x, func() {
		granted, doubtful, taken := false, o.doubtful, []string(nil)
		for _, c := range o.adrift {
			<-c.done
			doubtful = doubtful || c.doubtful
			if _, newly, yes, err := o.read(c.reply); yes && c.err == nil && err == nil {
				granted, taken = true, append(taken, newly...)
			}
		}
		switch {
		case o.custom && len(taken) > 0: // the rest may be an earlier hold's
			x.release.keys, x.release.boxed, x.release.args = taken, box(taken), []any{len(taken)}
			o.client.sendCleanup(x, o.ttl)
		case !o.custom && (granted || doubtful):
			if o.waiter.hasPlace() {
				x.release.args = append(x.release.args, o.waiter.entry)
			}
			o.client.sweepNow(x, o.ttl)
			return
		}
		if o.waiter.hasPlace() && !granted {
			o.client.node.send(o.newLeave(ctx), nil)
		}
	})
}

// leave gives up the waiter's place in line, and the keys if a hand-off has come first, in the background.
func (o *obtaining) leave(ctx context.Context) {
	x := &cleanup{release: o.newLeave(ctx)}
	o.client.inBackground(x, func() { o.client.node.send(x.release, nil) })
}

// leaveLines gives up the waiter's place in line and keeps the keys.
func (o *obtaining) leaveLines(ctx context.Context) {
	x := &cleanup{release: o.leaving(ctx, nil, o.boxed[len(o.keys):])}
	o.client.inBackground(x, func() { o.client.node.send(x.release, nil) })
}

// newLeave returns a call, yet to be sent, that takes the waiter out of the lines and releases what it was handed. With a
// token of the caller's own it was handed nothing, and the keys may be an earlier hold's.
func (o *obtaining) newLeave(ctx context.Context) *call {
	if o.custom {
		return o.leaving(ctx, nil, o.boxed[len(o.keys):])
	}
	return o.leaving(ctx, o.keys, o.boxed)
}

func (o *obtaining) leaving(ctx context.Context, keys []string, boxed []any) *call {
	c := newRelease(ctx, o.token, keys, boxed)
	c.simple = false
	c.args = append(c.args, o.waiter.entry)
	c.giveUp = time.Now().Add(o.waiter.life)
	c.persistent.Store(true)
	return c
}
