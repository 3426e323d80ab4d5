package survey

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/words"
)

const (
	scanCount    = 500     // how many keys a SCAN looks at; the server does nothing else then, for about half a millisecond
	inspectCount = 100     // how many keys one Inspect asks for, in one script, which returns up to 100 waiters of each then
	maxValue     = 4 << 10 // how many bytes of a value are read; that of a lock is seldom longer
)

// Scan looks for locks through all keys of a Redis. It knows them by the beginning of their values, and knows of the line of
// a key only whether it exists: who waits there, it asks the library.
type Scan struct {
	Redis   *Redis
	Pattern string // "" for all keys
	Filter  Filter

	// Found is called for each lock, in no order, perhaps twice. Its error ends the scan; Run returns it, except ErrEnough.
	Found func(Status) error

	Unreadable int   // keys that could not be read
	Why        error // for the first of them
}

// Run scans all masters, one after the other, a page of keys at a time. A page needs three round trips, and one for each
// hundred keys that have a line.
func (s *Scan) Run(ctx context.Context) error {
	err := s.run(ctx)
	if errors.Is(err, ErrEnough) {
		return nil
	}
	return err
}

func (s *Scan) run(ctx context.Context) error {
	if s.Pattern != "" && !strings.ContainsAny(s.Pattern, `*?[\`) && s.Redis.Quorum == 0 { // there is at most one such key
		return s.page(ctx, s.Redis.Client, []string{s.Pattern})
	}
	why, err := s.Redis.each(ctx, func(server redis.UniversalClient) error { return s.server(ctx, server) })
	s.Why = cmp.Or(s.Why, why)
	return err
}

func (s *Scan) server(ctx context.Context, server redis.UniversalClient) error {
	var cursor uint64
	for {
		keys, next, err := server.ScanType(ctx, cursor, s.Pattern, scanCount, "string").Result()
		if err != nil {
			return err
		}
		if err := s.page(ctx, server, keys); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// page looks at some keys of one server. It reads the beginning of each value first, which rules most of them out. It asks
// the library only about shared keys and keys that have a line: that takes a script, and on a Cluster one for each slot.
func (s *Scan) page(ctx context.Context, server redis.UniversalClient, keys []string) error {
	beginnings, err := s.read(ctx, server, keys, keyname.TokenBeginning-1, false)
	if err != nil {
		return err
	}
	var some []string
	for _, b := range beginnings {
		if s.Filter.mayBe(b) {
			some = append(some, b.key)
		}
	}
	if s.Redis.Quorum > 0 {
		return s.inspect(ctx, some)
	}
	values, err := s.read(ctx, server, some, maxValue, true)
	if err != nil {
		return err
	}
	var inLine []string
	for _, v := range values {
		switch status := v.status(); {
		case v.text == keyname.SharedMark: // only the library reads who holds it
			inLine = append(inLine, v.key)
		case !s.Filter.wants(status):
		case v.hasLine && !status.Cut:
			inLine = append(inLine, v.key)
		case !s.Filter.Waiting:
			if err := s.Found(status); err != nil {
				return err
			}
		}
	}
	return s.inspect(ctx, inLine)
}

// inspect asks the library about keys. Of a quorum it tells what a majority holds, and where the servers disagree.
func (s *Scan) inspect(ctx context.Context, keys []string) error {
	for batch := range slices.Chunk(keys, inspectCount) {
		statuses, err := s.Redis.inspect(ctx, batch)
		if err != nil {
			return err
		}
		for _, found := range statuses {
			status := Status{Status: Read(found)}
			if !s.Filter.wants(status) && !s.Filter.wantsSplit(status) || s.Filter.Waiting && status.Waiters == 0 {
				continue
			}
			if err := s.Found(status); err != nil {
				return err
			}
		}
	}
	return nil
}

// value is what a key holds, as far as it was read.
type value struct {
	key, text string
	ttl       time.Duration
	hasLine   bool
}

func (v value) status() Status {
	if len(v.text) > maxValue {
		return CutStatus(v.key, v.text[:maxValue], v.ttl)
	}
	return StatusOf(v.key, v.text, v.ttl)
}

// read reads the values of keys up to the byte with index last, and whether each key has a line. It leaves out other types.
func (s *Scan) read(
	ctx context.Context, server redis.UniversalClient, keys []string, last int64, lines bool,
) ([]value, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	queue := func(to redis.Cmdable, key string) answer {
		a := answer{text: to.GetRange(ctx, key, 0, last), ttl: to.PTTL(ctx, key)}
		if line := keyname.LineOf(key); lines && line != "" {
			a.line = to.Exists(ctx, line)
		}
		return a
	}
	answers := make([]answer, len(keys))
	pipe := server.Pipeline()
	for i, key := range keys {
		answers[i] = queue(pipe, key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		if _, answered := errors.AsType[redis.Error](err); !answered { // else each answer tells
			return nil, err
		}
	}
	all := make([]value, 0, len(keys))
	for i, key := range keys {
		v, err := answers[i].value()
		if moved(err) { // the slot is moving to another server of the Cluster
			v, err = queue(s.Redis.Client, key).value()
		}
		switch {
		case err == nil && v.ttl == -2: // gone
		case err == nil:
			v.key = key
			all = append(all, v)
		case strings.Contains(err.Error(), "WRONGTYPE"):
		default:
			if s.Unreadable++; s.Why == nil {
				s.Why = err
			}
		}
	}
	return all, nil
}

// answer is what a server says about a key.
type answer struct {
	text *redis.StringCmd
	ttl  *redis.DurationCmd
	line *redis.IntCmd // nil for a key that can have no line
}

func (a answer) value() (v value, err error) {
	v = value{text: a.text.Val(), ttl: a.ttl.Val(), hasLine: a.line != nil && a.line.Val() > 0}
	if v.ttl == 0 { // as the library has it: 0 would stand for a free key
		v.ttl = time.Millisecond
	}
	err = cmp.Or(a.text.Err(), a.ttl.Err())
	if a.line != nil {
		err = cmp.Or(err, a.line.Err())
	}
	return v, err
}

func moved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// Filter says which keys are wanted.
type Filter struct {
	All     bool     // every string, not only what looks like a lock
	Token   string   // how the token begins
	Meta    []string // NAME=VALUE or a part of the text; all must be there
	Waiting bool     // only keys that somebody waits for
}

// mayBe reports whether a key may be wanted, by the beginning of its value, of keyname.TokenBeginning bytes.
func (f *Filter) mayBe(v value) bool {
	if v.key == "" || keyname.IsBeside(v.key) {
		return false // no lock can have that name
	}
	if v.text == keyname.SharedMark { // its house has the tokens
		return true
	}
	if !f.All && (v.ttl < 0 || !keyname.BeginsLikeToken(v.text)) {
		return false
	}
	length := min(len(f.Token), len(v.text))
	return f.Token[:length] == v.text[:length]
}

// wants reports whether a key is wanted, regardless of its waiters.
func (f *Filter) wants(s Status) bool {
	switch {
	case s.TTL == 0, !f.All && s.TTL < 0:
		return false
	case s.HolderCount > 0:
		return slices.ContainsFunc(s.Holders, f.wantsHolder)
	case !strings.HasPrefix(s.Token, f.Token):
		return false
	case !f.All && !keyname.BeginsLikeToken(s.Token): // it has changed since the first look
		return false
	}
	return f.wantsMeta(s.Metadata)
}

// wantsHolder reports whether one of the holders of a shared key is wanted. Custom tokens count as well: no other string is
// like that of a shared key.
func (f *Filter) wantsHolder(h redislock.Holder) bool {
	return strings.HasPrefix(h.Token, f.Token) && f.wantsMeta(h.Metadata)
}

func (f *Filter) wantsMeta(metadata string) bool {
	for _, wanted := range f.Meta {
		if !HasMeta(metadata, wanted) {
			return false
		}
	}
	return true
}

// wantsSplit reports whether a key is wanted that no majority of a quorum holds, although some servers do.
func (f *Filter) wantsSplit(s Status) bool {
	if s.Token != "" || s.TTL != 0 || len(f.Meta) > 0 {
		return false
	}
	for _, place := range s.Places {
		if place.Token != "" && strings.HasPrefix(place.Token, f.Token) && (f.All || keyname.BeginsLikeToken(place.Token)) {
			return true
		}
	}
	return false
}

// HasMeta reports whether metadata has a field as in NAME=VALUE, or the whole of wanted somewhere in its text.
func HasMeta(metadata, wanted string) bool {
	if name, value, ok := strings.Cut(wanted, "="); ok {
		fields, _ := words.Fields(metadata)
		for _, f := range fields {
			if f.Name == name && f.Value == value {
				return true
			}
		}
	}
	return strings.Contains(metadata, wanted)
}
