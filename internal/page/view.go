package page

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/tree"
	"github.com/redislock/redislock/internal/words"
)

const (
	// maxRows is how many locks the table shows.
	maxRows = 500

	// maxNodes bounds the trees, maxBelow the waiters of one lock, and maxCircles the circles.
	maxNodes   = 500
	maxBelow   = 20
	maxCircles = 20
)

// view is what the page shows. Its texts are not escaped for HTML.
type view struct {
	Where   string
	Error   string
	Seen    string // when Redis was looked at, as in RFC 3339; "" for never
	Clock   string // the same for people
	Count   string // such as "3 locks"
	Waiting int    // how many wait
	Notes   []string

	Query   query
	Circles []circle
	Trees   []*node
	Columns []column
	Rows    []row
	More    int // rows that are not shown
}

// who is who holds a lock, or waits for one.
type who struct {
	Name, PID, Command string
	Token              string // its beginning, if nothing else is known
}

type circle struct {
	Number int
	Steps  []step
	WayOut []string
}

// step is a member of a circle: it waits for Key, which Holder holds, or Behind another in line.
type step struct {
	Who            who
	Key            string
	Holder, Behind *who
}

// node is a lock or a waiter in a tree.
type node struct {
	Who   *who // nil for the lock of the waiter above
	Verb  string
	Keys  []string
	More  bool // and other keys
	Also  []string
	Since string
	Stuck int // the number of its circle; 0 for none
	Below []*node
}

type row struct {
	ID         string // stays the same from look to look
	Key        string
	Who        who
	Count      string   // of holders
	Sharers    []sharer // those who share the key, if they are several; the first 100
	Fields     []words.Field
	Held, Left string
	Waiters    int
}

// sharer is one of several who hold a key.
type sharer struct {
	Who  who
	Left string
}

// newView makes a view of a look, which may be nil.
func newView(found *look, q query, now time.Time) *view {
	v := &view{Query: q, Columns: columnsOf(q), Count: words.Count(0, "lock")}
	if found == nil || found.seen.IsZero() {
		return v
	}
	v.Seen, v.Clock = found.seen.UTC().Format(time.RFC3339), found.seen.Format(time.TimeOnly)
	v.Count = words.Count(len(found.locks), "lock")
	if found.cut {
		v.Count = fmt.Sprintf("%d+ locks", len(found.locks))
		v.Notes = append(v.Notes, fmt.Sprintf("Only %d locks are shown; there are more.", len(found.locks)))
	}
	v.Waiting = len(found.Tree.Waiters)
	if found.Cut {
		note := fmt.Sprintf("Only %d waiters were looked at, so trees and circles may be missing.", found.Waiters)
		v.Notes = append(v.Notes, note)
	}
	if found.Unreadable > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%d keys could not be read: %v", found.Unreadable, found.Why))
	}
	passed := now.Sub(found.seen)
	(&planter{view: v, finding: found.Finding, passed: passed}).plant()
	v.table(found.locks, now, passed)
	return v
}

func whoIs(token, metadata string) who {
	o, isObject := tree.OwnerOf(metadata)
	w := who{
		Name: words.Escape(o.Name()), PID: words.Escape(o.PID), Command: words.Escape(o.Command), Token: words.ShortToken(token),
	}
	if !isObject || w.Name == "" {
		w.Name = words.Metadata(metadata)
	}
	return w
}

// query is what the user wants to see.
type query struct {
	Text string // a part of a key or of metadata
	Sort string // a name in orders, perhaps after a minus
}

func queryOf(values url.Values) query {
	q := query{strings.TrimSpace(values.Get("q")), values.Get("sort")}
	if orders[strings.TrimPrefix(q.Sort, "-")] == nil {
		q.Sort = "key"
	}
	return q
}

// matches reports whether one of the texts has what the user wants to see, in any case.
func (q query) matches(texts ...string) bool {
	wanted := strings.ToLower(q.Text)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), wanted) })
}

type column struct{ Name, Link, Order string }

// columnsOf returns the heads of the table. A click on that by which it is sorted turns the order around.
func columnsOf(q query) (all []column) {
	for _, c := range []struct{ name, sort string }{
		{"key", "key"}, {"holder", "holder"}, {"held for", "-age"}, {"left", "left"}, {"waiting", "-waiting"},
	} {
		link, order := url.Values{"sort": {c.sort}}, ""
		if q.Text != "" {
			link.Set("q", q.Text)
		}
		if strings.TrimPrefix(q.Sort, "-") == strings.TrimPrefix(c.sort, "-") {
			order = "ascending"
			link.Set("sort", "-"+q.Sort)
			if rest, down := strings.CutPrefix(q.Sort, "-"); down {
				order = "descending"
				link.Set("sort", rest)
			}
		}
		all = append(all, column{c.name, link.Encode(), order})
	}
	return all
}

// orders compare what a column shows. Keys decide between rows that are alike.
var orders = map[string]func(a, b *survey.Status) int{
	"key":     func(a, b *survey.Status) int { return strings.Compare(a.Key, b.Key) },
	"holder":  func(a, b *survey.Status) int { return strings.Compare(nameOf(a), nameOf(b)) },
	"age":     func(a, b *survey.Status) int { return sinceOf(b).Compare(sinceOf(a)) },
	"left":    func(a, b *survey.Status) int { return cmp.Compare(uint64(a.TTL), uint64(b.TTL)) }, // -1 is for ever
	"waiting": func(a, b *survey.Status) int { return cmp.Compare(a.Waiters, b.Waiters) },
}

func nameOf(s *survey.Status) string { return strings.ToLower(whoIs(s.Token, s.Metadata).Name) }

// sinceOf returns when the lock was acquired; if that is not known, a time after all others.
func sinceOf(s *survey.Status) time.Time {
	if o, _ := tree.OwnerOf(s.Metadata); !o.Since.IsZero() {
		return o.Since
	}
	return time.Unix(1<<40, 0)
}

// table fills in the rows. The locks were seen that long ago.
func (v *view) table(locks []survey.Status, now time.Time, passed time.Duration) {
	var wanted []*survey.Status
	for i := range locks {
		s := &locks[i]
		metadata := []string{s.Key, s.Metadata}
		for _, h := range s.Holders {
			metadata = append(metadata, h.Metadata)
		}
		if v.Query.matches(metadata...) {
			wanted = append(wanted, s)
		}
	}
	name, down := strings.CutPrefix(v.Query.Sort, "-")
	order := orders[name]
	slices.SortStableFunc(wanted, func(a, b *survey.Status) int {
		if down {
			a, b = b, a
		}
		return order(a, b)
	})
	if v.More = len(wanted) - maxRows; v.More > 0 {
		wanted = wanted[:maxRows]
	} else {
		v.More = 0
	}
	for _, s := range wanted {
		v.Rows = append(v.Rows, rowOf(s, now, passed))
	}
}

func rowOf(s *survey.Status, now time.Time, passed time.Duration) row {
	r := row{
		ID: "k" + hashOf(s.Key)[len("sha256-"):], Key: words.Escape(s.Key), Who: whoIs(s.Token, s.Metadata), Waiters: s.Waiters,
	}
	switch {
	case s.Token == "" && len(s.Places) > 0:
		r.Who = who{Name: "no majority"}
	case s.Token == "":
		r.Who = who{Name: "not a lock"}
	case s.HolderCount > 1:
		r.Count = words.Count(s.HolderCount, "holder")
		for _, h := range s.Holders {
			r.Sharers = append(r.Sharers, sharer{whoIs(h.Token, h.Metadata), words.Duration(max(h.TTL-passed, 0))})
		}
	}
	if o, isObject := tree.OwnerOf(s.Metadata); isObject {
		r.Fields, _ = words.Fields(s.Metadata)
		for i, f := range r.Fields {
			r.Fields[i] = words.Field{Name: words.Escape(f.Name), Value: words.Escape(f.Value)}
		}
		if !o.Since.IsZero() {
			r.Held = words.Duration(max(now.Sub(o.Since), 0))
		}
	}
	switch {
	case s.TTL > 0:
		r.Left = words.Duration(max(s.TTL-passed, 0))
	case s.TTL < 0:
		r.Left = "no expiry"
	}
	return r
}
