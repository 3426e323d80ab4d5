package page

import (
	"slices"
	"time"

	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/tree"
	"github.com/redislock/redislock/internal/words"
)

// planter makes the trees and the circles of a view. Each lock and the line of each key is shown once.
type planter struct {
	*view

	finding *survey.Finding
	passed  time.Duration // since that
	nodes   int
	circles map[*tree.Lock]int
	locks   map[*tree.Lock]bool
	keys    map[*tree.Key]bool
}

func (p *planter) plant() {
	p.circles, p.locks, p.keys = map[*tree.Lock]int{}, map[*tree.Lock]bool{}, map[*tree.Key]bool{}
	for i, c := range p.finding.Tree.Circles[:min(len(p.finding.Tree.Circles), maxCircles)] {
		p.circle(i+1, c)
	}
	wanted := p.wanted()
	for _, l := range p.finding.Tree.Roots {
		if !p.locks[l] && wanted[l] {
			p.add(&p.Trees, p.lock(l, true))
		}
	}
	for _, k := range p.finding.Tree.Unheld {
		if p.wantsLine(k) {
			n := &node{Verb: "nobody holds", Keys: []string{words.Escape(k.Key)}}
			p.below(n, []*tree.Key{k})
			p.add(&p.Trees, n)
		}
	}
	if p.nodes >= maxNodes {
		p.Notes = append(p.Notes, "There are more waiters than the trees show; filter them by a key.")
	}
}

func (p *planter) circle(number int, c *tree.Circle) {
	one := circle{Number: number}
	for i, s := range c.Steps {
		w, next := s.Place.Waiter, c.Steps[(i+1)%len(c.Steps)].Place.Waiter
		this := step{Who: whoIs(w.Token, w.Metadata), Key: words.Escape(s.Place.Key.Key)}
		if s.Lock != nil {
			this.Holder = new(whoIs(s.Lock.Token, s.Lock.Metadata))
			if p.circles[s.Lock] == 0 {
				p.circles[s.Lock] = number
			}
		} else {
			this.Behind = new(whoIs(next.Token, next.Metadata))
		}
		one.Steps = append(one.Steps, this)
	}
	for _, k := range c.WayOut() {
		one.WayOut = append(one.WayOut, words.Escape(k.Key))
	}
	p.Circles = append(p.Circles, one)
}

// wantsLine reports whether the user wants to see a key or one of its waiters.
func (p *planter) wantsLine(k *tree.Key) bool {
	return p.Query.matches(k.Key) ||
		slices.ContainsFunc(k.Places, func(at *tree.Place) bool { return p.Query.matches(at.Waiter.Metadata) })
}

// wanted returns the locks that the user wants to see, and those with something below them that the user wants to see.
func (p *planter) wanted() map[*tree.Lock]bool {
	var keys []*tree.Key
	var locks []*tree.Lock
	for _, k := range p.finding.Tree.Keys {
		if p.wantsLine(k) {
			keys = append(keys, k)
		}
	}
	for _, l := range p.finding.Tree.Locks {
		if p.Query.matches(l.Metadata) {
			locks = append(locks, l)
		}
	}
	_, above := tree.Above(keys, locks)
	return above
}

// add adds a node, while there is room for it.
func (p *planter) add(to *[]*node, n *node) {
	if p.nodes < maxNodes {
		*to = append(*to, n)
		p.nodes++
	}
}

// lock returns a lock, and what is below it. A root names its holder; others are below the waiter of their caller.
func (p *planter) lock(l *tree.Lock, root bool) *node {
	p.locks[l] = true
	n := &node{Verb: "holds", Stuck: p.circles[l]}
	if root {
		n.Who = new(whoIs(l.Token, l.Metadata))
	}
	var open []*tree.Key
	for _, h := range l.Keys {
		n.Keys = append(n.Keys, words.Escape(h.Key.Key))
		if h.Key.Waiters > 0 && !p.keys[h.Key] {
			open = append(open, h.Key)
		}
	}
	if o, _ := tree.OwnerOf(l.Metadata); !o.Since.IsZero() {
		n.Since = "for " + words.Duration(max(time.Since(o.Since), 0)) + ", "
	}
	if ttl := l.TTL(); ttl >= 0 {
		n.Since += words.Duration(max(ttl-p.passed, 0)) + " left"
	} else {
		n.Since += "no expiry"
	}
	p.below(n, open)
	return n
}

// below adds the waiters for keys.
func (p *planter) below(n *node, keys []*tree.Key) {
	for _, k := range keys {
		p.keys[k] = true
	}
	some, more := tree.Below(keys, maxBelow)
	for _, b := range some {
		if b.Skipped > 0 {
			p.add(&n.Below, &node{Verb: words.Count(b.Skipped, "more waiter")})
		}
		if p.nodes >= maxNodes {
			return
		}
		p.add(&n.Below, p.waiter(b))
	}
	if more > 0 {
		p.add(&n.Below, &node{Verb: words.Count(more, "more waiter")})
	}
}

// waiter returns a waiter, and the locks that its caller holds.
func (p *planter) waiter(b tree.Branch) *node {
	w := b.Waiter
	n := &node{Who: new(whoIs(w.Token, w.Metadata)), Verb: "waits for", More: w.Wants == nil}
	here, others := b.Keys()
	n.Keys, n.Also = escaped(here), escaped(others)
	n.Since = "for " + words.Duration(max(p.finding.Now.Sub(w.Since)+p.passed, 0))
	if w.Late {
		n.Since += ", late"
	}
	for _, held := range w.Holds {
		l := w.Lock(held.Token)
		if l != nil && !p.locks[l] && l.Waiting() > 0 {
			p.add(&n.Below, p.lock(l, false))
			continue
		}
		p.add(&n.Below, &node{Verb: "holds", Keys: escaped(held.Keys), More: held.More, Stuck: p.circles[l]}) // 0 for nil
	}
	return n
}

func escaped(keys []string) []string {
	safe := make([]string, len(keys))
	for i, key := range keys {
		safe[i] = words.Escape(key)
	}
	return safe
}
