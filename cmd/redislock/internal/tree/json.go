package tree

import (
	"encoding/json"
	"io"
	"time"

	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/tree"
	"github.com/redislock/redislock/internal/words"
)

// Locks and waiters have numbers, by which the others name them: no whole token is in JSON.

type circleJSON struct {
	Kind   string     `json:"kind"`         // circle
	At     string     `json:"at,omitempty"` // with --watch: when this was seen
	Steps  []stepJSON `json:"steps"`
	WayOut []string   `json:"way_out"` // keys; to release one of them ends the circle
}

type stepJSON struct {
	Waiter int    `json:"waiter"`
	Key    string `json:"key"`  // for which it waits
	Lock   *int   `json:"lock"` // holds the key, and the caller of the next waiter holds it; null if that one is ahead in line
}

type lockJSON struct {
	Kind string `json:"kind"` // lock
	At   string `json:"at,omitempty"`
	partyJSON

	HeldSince *time.Time `json:"held_since,omitempty"` // if the metadata says so
	Keys      []string   `json:"keys"`
	Waits     []int      `json:"waits"` // waiters of its caller
	Root      bool       `json:"root"`
}

type waiterJSON struct {
	Kind string `json:"kind"` // waiter
	At   string `json:"at,omitempty"`
	partyJSON

	Process   string        `json:"process"`
	Since     time.Time     `json:"since"`
	Late      bool          `json:"late"`
	WaitsFor  []string      `json:"waits_for"` // the keys in whose lines it was found
	Limit     int           `json:"limit"`     // how many holders it would let the first of them have; 0 for no limit
	Wants     []string      `json:"wants"`     // all keys that it wants; null if it does not name them
	Holds     []holdingJSON `json:"holds"`
	HoldsMore bool          `json:"holds_more,omitempty"`
}

type holdingJSON struct {
	Lock *int     `json:"lock"` // null if nobody waits for its keys
	Keys []string `json:"keys"`
	More bool     `json:"more,omitempty"`
}

type keyJSON struct {
	Kind      string `json:"kind"` // key
	At        string `json:"at,omitempty"`
	Key       string `json:"key"`
	KeyBase64 string `json:"key_base64,omitempty"`
	TTL       *int64 `json:"ttl_ms"`  // as in show.StatusJSON
	Holders   []int  `json:"holders"` // locks
	Waiters   int    `json:"waiters"`
	Line      []int  `json:"line"` // waiters, in order
}

// partyJSON is what a lock and a waiter have in common.
type partyJSON struct {
	ID       int             `json:"id"`
	Token    string          `json:"token"` // its first characters
	Metadata string          `json:"metadata"`
	Base64   string          `json:"metadata_base64,omitempty"`
	Fields   json.RawMessage `json:"fields,omitempty"` // the metadata, if it is an object
}

// writeJSON prints what was found, one object a line. It contains the time at, which may be "".
func writeJSON(out io.Writer, found *survey.Finding, at string) error {
	t := found.Tree
	for _, c := range t.Circles {
		if err := show.WriteJSON(out, circleOf(c, at)); err != nil {
			return err
		}
	}
	roots := map[*tree.Lock]bool{}
	for _, l := range t.Roots {
		roots[l] = true
	}
	for _, l := range t.Locks {
		if err := show.WriteJSON(out, lockOf(l, at, roots[l])); err != nil {
			return err
		}
	}
	for _, w := range t.Waiters {
		if err := show.WriteJSON(out, waiterOf(w, at)); err != nil {
			return err
		}
	}
	for _, k := range t.Keys {
		if err := show.WriteJSON(out, keyOf(k, at)); err != nil {
			return err
		}
	}
	return nil
}

func circleOf(c *tree.Circle, at string) circleJSON {
	j := circleJSON{Kind: "circle", At: at, WayOut: []string{}}
	for _, s := range c.Steps {
		step := stepJSON{Waiter: s.Place.Waiter.ID, Key: s.Place.Key.Key}
		if s.Lock != nil {
			step.Lock = &s.Lock.ID
		}
		j.Steps = append(j.Steps, step)
	}
	for _, k := range c.WayOut() {
		j.WayOut = append(j.WayOut, k.Key)
	}
	return j
}

func lockOf(l *tree.Lock, at string, root bool) lockJSON {
	j := lockJSON{Kind: "lock", At: at, partyJSON: partyOf(l.ID, l.Token, l.Metadata), Waits: []int{}, Root: root}
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

func waiterOf(w *tree.Waiter, at string) waiterJSON {
	j := waiterJSON{
		Kind: "waiter", At: at, partyJSON: partyOf(w.ID, w.Token, w.Metadata), Process: w.Process, Since: w.Since.UTC(),
		Late: w.Late, Limit: w.Limit, Wants: w.Wants, Holds: []holdingJSON{}, HoldsMore: w.HoldsMore,
	}
	for _, p := range w.Places {
		j.WaitsFor = append(j.WaitsFor, p.Key.Key)
	}
	for _, held := range w.Holds {
		one := holdingJSON{Keys: held.Keys, More: held.More}
		if l := w.Lock(held.Token); l != nil {
			one.Lock = &l.ID
		}
		j.Holds = append(j.Holds, one)
	}
	return j
}

func keyOf(k *tree.Key, at string) keyJSON {
	status := show.JSONOf(survey.Status{Status: k.Status})
	j := keyJSON{
		Kind: "key", At: at, Key: k.Key, KeyBase64: status.KeyBase64, TTL: status.TTL, Waiters: k.Waiters,
		Holders: []int{}, Line: []int{},
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
	p := partyJSON{ID: id, Token: words.ShortToken(token), Metadata: metadata, Base64: show.InBase64(metadata)}
	if _, ok := words.Fields(metadata); ok {
		p.Fields = json.RawMessage(metadata)
	}
	return p
}
