package inbox

import "time"

// A subscription can be alive and yet useless. It stays at the server where it was made, while the name of that server now
// leads to another server, on which the scripts run and publish. No error shows that, but a script that runs there can count
// who listens.
//
// Such a subscription is replaced by a new one, and until then counts as none. Replacing does not always help: behind some
// proxies, a server that nobody can subscribe to publishes. So the pauses before a replacement grow.

const (
	// The first replacement comes at once, the second one after firstPause. Each further pause is twice as long, up to
	// maxPause. A time of calm without a doubt begins anew.
	firstPause = time.Second
	maxPause   = 5 * time.Minute
	calm       = 2 * maxPause
)

// doubts are the reasons to think that no message arrives through the present subscription.
type doubts struct {
	subscription int           // the last one that was in doubt
	since        time.Time     // when it was
	pause        time.Duration // before its replacement
	replacement  *time.Timer   // makes it; nil if none is due
}

// Doubt notes that no message arrives through this subscription. Subscription returns 0 from now on, until there is
// another one.
func (b *Inbox) Doubt(subscription int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, now := &b.doubts, time.Now()
	if !b.open || b.opened != subscription || d.subscription == subscription {
		return
	}
	if d.since.IsZero() || now.Sub(d.since) > calm {
		d.pause = 0
	} else {
		d.pause = min(max(2*d.pause, firstPause), maxPause)
	}
	d.subscription, d.since = subscription, now
	d.replacement = time.AfterFunc(d.pause, b.replace)
}

// cancel forgets the doubts about a subscription that has ended.
func (d *doubts) cancel() {
	if d.replacement != nil {
		d.replacement.Stop()
		d.replacement = nil
	}
}

// replace ends the present subscription and begins another one.
func (b *Inbox) replace() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop == nil || b.doubts.replacement == nil {
		return
	}
	b.doubts.cancel()
	b.stop()
	b.open = false
	b.begin()
}
