package redislock

import (
	"context"
	_ "embed" // for the scripts
	"slices"
	"time"
)

//go:embed obtain.lua
var obtainSource string

var obtainScript = newScript("obtain", obtainSource)

// obtaining is one Obtain with all its tries. It belongs to one goroutine.
type obtaining struct {
	client   *Client
	keys     []string
	scripted []string // keys, and the fence key where there is one
	ttl      time.Duration
	metadata string
	fenced   any  // "1" or "0", boxed once instead of for each try
	custom   bool // the token is the caller's own

	token    string
	doubtful bool // a sending of the present token may have been executed unknown to us
	lock     *Lock
}

// obtain is ObtainMulti for keys that are the library's own slice.
func (c *Client) obtain(ctx context.Context, keys []string, ttl time.Duration, opt *Options) (*Lock, error) {
	o := &obtaining{client: c, keys: keys, scripted: keys, ttl: ttl, fenced: "0"}
	if err := o.prepare(ctx, opt); err != nil {
		return nil, err
	}
	strategy := opt.strategy()
	if strategy != nil {
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, ttl)
			defer cancel()
		}
	}
	cut, err := retry(ctx, c.closed, strategy, time.Time{}, func() (bool, error) { return o.try(ctx) })
	if err == nil {
		return o.lock, nil
	}
	if o.doubtful && !o.custom {
		o.forget(o.token, keys, time.Now())
	}
	if cut {
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
	if opt != nil {
		if err := checkToken(opt.Token); err != nil {
			return err
		}
		if err := checkFenceKey(opt.FenceKey, o.keys); err != nil {
			return err
		}
		o.metadata, o.token, o.custom = opt.Metadata, opt.Token, opt.Token != ""
		if opt.FenceKey != "" {
			o.scripted, o.fenced = append(slices.Clone(o.keys), opt.FenceKey), "1"
		}
	}
	if o.token == "" {
		o.token = randomToken()
	}
	return o.client.node.onOneShard("obtain", o.scripted)
}

// try asks once for all keys. It reports whether the answer was a refusal, after which another try makes sense.
func (o *obtaining) try(ctx context.Context) (again bool, err error) {
	if err := ended(ctx); err != nil {
		return false, notObtained(err)
	}
	c := &call{
		script: obtainScript,
		keys:   o.scripted,
		token:  o.token,
		args:   []any{o.metadata, o.ttl.Milliseconds(), o.fenced},
		ctx:    ctx,
		giveUp: time.Now().Add(o.ttl),
	}
	if !o.client.node.do(ctx, c) {
		o.abandon(c)
		return false, notObtained(ended(ctx))
	}
	o.doubtful = o.doubtful || c.doubtful
	if c.err != nil {
		if err := ended(ctx); err != nil {
			return false, notObtained(err)
		}
		return false, failed("obtain", o.keys, explain(o.scripted, c.err))
	}
	fence, taken, granted, err := o.read(c.reply)
	switch {
	case err != nil:
		return false, failed("obtain", o.keys, err)
	case !granted:
		return true, ErrNotObtained
	}
	until := validUntil(c.sent, o.ttl)
	if passed(until) {
		return o.decline(ctx, c, taken)
	}
	o.lock = &Lock{
		client: o.client, keys: o.keys, token: o.token, fence: fence,
		metadata: o.metadata, until: until,
	}
	return false, nil
}

// read takes the reply of the script apart: the fencing token and the newly taken keys of a grant.
func (o *obtaining) read(reply any) (fence int64, taken []string, granted bool, err error) {
	if refused, ok := reply.(int64); ok && refused == 0 {
		return 0, nil, false, nil
	}
	grant, _ := reply.([]any)
	if len(grant) == 0 {
		return 0, nil, false, unexpected(reply)
	}
	fence, _ = grant[0].(int64)
	if len(grant) == 1 {
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
// release can hit a later grant. A token of the caller's own stays, so the release must have been answered before the
// next try; if it was not, there is none.
func (o *obtaining) decline(ctx context.Context, c *call, taken []string) (again bool, err error) {
	if !o.custom {
		o.forget(o.token, taken, c.sent)
		o.token, o.doubtful = randomToken(), false
		return true, ErrNotObtained
	}
	if len(taken) == 0 {
		return true, ErrNotObtained
	}
	back := &call{script: releaseScript, keys: taken, token: o.token, ctx: context.WithoutCancel(ctx), giveUp: c.sent.Add(o.ttl)}
	if !o.client.node.do(ctx, back) {
		o.client.persist(back)
		return false, notObtained(ended(ctx))
	}
	if back.err != nil {
		return false, failed("obtain", o.keys, back.err)
	}
	return !back.doubtful, ErrNotObtained
}

// abandon sees to a call that goes on although its caller has left: what it takes after all is released. Nothing is
// sent before the call has ended, lest the release overtake what it undoes.
func (o *obtaining) abandon(c *call) {
	doubtful := o.doubtful
	o.doubtful = false // the job below answers for it, if there is room for one; if not, the ttl does
	o.client.inBackground(func() {
		<-c.done
		_, taken, granted, err := o.read(c.reply)
		switch {
		case o.custom && c.err == nil && err == nil && granted && len(taken) > 0:
			o.client.release(c.ctx, o.token, taken, c.sent.Add(o.ttl))
		case !o.custom && (doubtful || c.doubtful || c.err == nil && granted):
			o.client.sweep(c.ctx, o.token, o.keys, c.sent.Add(o.ttl))
		}
	})
}

// forget releases, in the background, keys that the token may hold and that nobody wants.
func (o *obtaining) forget(token string, keys []string, sent time.Time) {
	client, giveUp := o.client, sent.Add(o.ttl)
	client.inBackground(func() { client.sweep(context.Background(), token, keys, giveUp) })
}

// sweepAgain is the time after which a sweep that found nothing looks once more: a request may have been on its way
// although its connection was given up.
const sweepAgain = time.Second

// sweep releases the keys, and once more a little later unless that deleted something.
func (c *Client) sweep(ctx context.Context, token string, keys []string, giveUp time.Time) {
	if c.release(ctx, token, keys, giveUp) > 0 {
		return
	}
	timer := time.NewTimer(sweepAgain)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed: // now or never
	}
	c.release(ctx, token, keys, giveUp)
}

// release deletes those of keys that the token holds, trying until giveUp, and returns how many that were.
func (c *Client) release(ctx context.Context, token string, keys []string, giveUp time.Time) (deleted int) {
	back := &call{script: releaseScript, keys: keys, token: token, ctx: context.WithoutCancel(ctx), giveUp: giveUp}
	back.persistent.Store(true)
	c.node.send(back)
	lost, _ := back.reply.([]any)
	if back.err != nil {
		return 0
	}
	return len(keys) - len(lost)
}

// persist lets a release go on in the background until its time is up.
func (c *Client) persist(release *call) {
	release.persistent.Store(c.inBackground(func() { <-release.done }))
}
