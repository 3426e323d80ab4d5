package tree

import (
	"encoding/json"
	"io"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/tree"
)

// treeJSON is all that was found. Locks and waiters have numbers, by which the others name them: no whole token is there.
type treeJSON struct {
	At      string       `json:"at,omitempty"` // with --watch: when this was seen
	Keys    []keyJSON    `json:"keys"`
	Locks   []lockJSON   `json:"locks"`
	Waiters []waiterJSON `json:"waiters"`
	Circles []circleJSON `json:"circles"`
	Roots   []int        `json:"roots"` // locks
	Cut     bool         `json:"cut,omitempty"`
}

type keyJSON struct {
	Key       string `json:"key"`
	KeyBase64 string `json:"key_base64,omitempty"`
	TTL       *int64 `json:"ttl_ms"`  // as in show.StatusJSON
	Holders   []int  `json:"holders"` // locks
	Waiters   int    `json:"waiters"`
	Line      []int  `json:"line"` // waiters, in order
}

type partyJSON struct {
	ID       int             `json:"id"`
	Token    string          `json:"token"` // its first characters
	Metadata string          `json:"metadata"`
	Base64   string          `json:"metadata_base64,omitempty"`
	Fields   json.RawMessage `json:"fields,omitempty"` // the metadata, if it is an object
}

type lockJSON struct {
	partyJSON

	HeldSince *time.Time `json:"held_since,omitempty"` // if the metadata says so
	Keys      []string   `json:"keys"`
	Waits     []int      `json:"waits"` // waiters of its caller
}

type waiterJSON struct {
	partyJSON

	Process   string        `json:"process"`
	Since     time.Time     `json:"since"`
	Late      bool          `json:"late"`
	WaitsFor  []string      `json:"waits_for"` // the keys in whose lines it was found
	Limit     int           `json:"limit"`     // how many holders it would let the first of them have; 0 for no limit
	Wants     []string      `json:"wants"`     // all keys that it wants; null if they are too many
	Holds     []holdingJSON `json:"holds"`
	HoldsMore bool          `json:"holds_more,omitempty"`
}

type holdingJSON struct {
	Lock *int     `json:"lock"` // null if nobody waits for its keys
	Keys []string `json:"keys"`
	More bool     `json:"more,omitempty"`
}

type circleJSON struct {
	Steps  []stepJSON `json:"steps"`
	WayOut []string   `json:"way_out"` // keys; to release one of them ends the circle
}

type stepJSON struct {
	Waiter int    `json:"waiter"`
	Key    string `json:"key"`  // for which it waits
	Lock   *int   `json:"lock"` // holds the key, and the caller of the next waiter holds it; null if that one is ahead in line
}

// writeJSON prints trees as one object in one line. It contains the time at, which may be "".
func writeJSON(out io.Writer, found *finding, at string) error {
	t := found.tree
	j := treeJSON{
		At: at, Cut: found.cut || t.MoreCircles,
		Keys: []keyJSON{}, Locks: []lockJSON{}, Waiters: []waiterJSON{}, Circles: []circleJSON{}, Roots: []int{},
	}
	for _, k := range t.Keys {
		j.Keys = append(j.Keys, keyOf(k))
	}
	for _, l := range t.Locks {
		j.Locks = append(j.Locks, lockOf(l))
	}
	for _, w := range t.Waiters {
		j.Waiters = append(j.Waiters, waiterOf(w))
	}
	for _, c := range t.Circles {
		one := circleJSON{WayOut: []string{}}
		for _, s := range c.Steps {
			step := stepJSON{Waiter: s.Place.Waiter.ID, Key: s.Place.Key.Key}
			if s.Lock != nil {
				step.Lock = &s.Lock.ID
			}
			one.Steps = append(one.Steps, step)
		}
		for _, k := range c.WayOut() {
			one.WayOut = append(one.WayOut, k.Key)
		}
		j.Circles = append(j.Circles, one)
	}
	for _, l := range t.Roots {
		j.Roots = append(j.Roots, l.ID)
	}
	return show.WriteJSON(out, j)
}

func keyOf(k *tree.Key) keyJSON {
	status := show.Status{Status: k.Status}.JSON()
	j := keyJSON{
		Key: k.Key, KeyBase64: status.KeyBase64, TTL: status.TTL, Waiters: k.Waiters, Holders: []int{}, Line: []int{},
	}
	for _, h := range k.Holders {
		j.Holders = append(j.Holders, h.Lock.ID)
	}
	for _, p := range k.Places {
		j.Line = append(j.Line, p.Waiter.ID)
	}
	return j
}

func partyOf(id int, token, metadata string) partyJSON {
	p := partyJSON{ID: id, Token: show.ShortToken(token), Metadata: metadata, Base64: show.InBase64(metadata)}
	if _, ok := show.Fields(metadata); ok {
		p.Fields = json.RawMessage(metadata)
	}
	return p
}

func lockOf(l *tree.Lock) lockJSON {
	j := lockJSON{partyJSON: partyOf(l.ID, l.Token, l.Metadata), Waits: []int{}}
	if since := show.OwnerOf(l.Metadata).Since; !since.IsZero() {
		j.HeldSince = new(since.UTC())
	}
	for _, h := range l.Keys {
		j.Keys = append(j.Keys, h.Key.Key)
	}
	for _, w := range l.Waits {
		j.Waits = append(j.Waits, w.ID)
	}
	return j
}

func waiterOf(w *tree.Waiter) waiterJSON {
	j := waiterJSON{
		partyJSON: partyOf(w.ID, w.Token, w.Metadata), Process: w.Process, Since: w.Since.UTC(), Late: w.Late,
		Limit: w.Limit, Wants: w.Wants, Holds: []holdingJSON{}, HoldsMore: w.HoldsMore,
	}
	for _, p := range w.Places {
		j.WaitsFor = append(j.WaitsFor, p.Key.Key)
	}
	for _, held := range w.Holds {
		one := holdingJSON{Keys: held.Keys, More: held.More}
		for _, l := range w.Locks {
			if l.Token == held.Token {
				one.Lock = &l.ID
			}
		}
		j.Holds = append(j.Holds, one)
	}
	return j
}
