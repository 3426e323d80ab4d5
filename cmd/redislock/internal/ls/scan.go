package ls

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/connect"
	"github.com/redislock/redislock/cmd/redislock/internal/show"
	"github.com/redislock/redislock/internal/keyname"
)

const (
	// scanCount is how many keys a SCAN looks at. The server does nothing else for that time, about half a millisecond.
	scanCount = 500

	// inspectCount is how many keys one Inspect asks for, in one script.
	inspectCount = 100

	// maxValue is how many bytes of a value are read. A lock's value is seldom longer; other values may have any length.
	maxValue = 4 << 10
)

// scan looks for locks through all keys of a Redis.
type scan struct {
	client  redis.UniversalClient
	locks   *redislock.Client
	pattern string // "" for all keys
	filter  lsFilter

	found func(show.Status) error // called for each lock, in no order; the same key may come twice

	unreadable int   // keys that could not be read
	why        error // for the first of them
}

// run scans all masters, one after the other. It never has more than a page of keys in memory.
func (s *scan) run(ctx context.Context) error {
	if s.pattern != "" && !strings.ContainsAny(s.pattern, `*?[\`) { // there is at most one such key
		return s.page(ctx, s.client, []string{s.pattern})
	}
	servers, err := connect.Masters(ctx, s.client)
	if err != nil {
		return err
	}
	for _, server := range servers {
		if err := s.server(ctx, server); err != nil {
			return err
		}
	}
	return nil
}

// server scans one server.
func (s *scan) server(ctx context.Context, server *redis.Client) error {
	var cursor uint64
	for {
		keys, next, err := server.ScanType(ctx, cursor, s.pattern, scanCount, "string").Result()
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

// page looks at some keys of one server. It reads the beginning of each value first, which rules most of them out.
func (s *scan) page(ctx context.Context, server redis.UniversalClient, keys []string) error {
	beginnings, err := s.read(ctx, server, keys, keyname.TokenLength)
	if err != nil {
		return err
	}
	var some []string
	for _, b := range beginnings {
		if s.filter.mayBe(b.Status, b.value) {
			some = append(some, b.Key)
		}
	}
	if len(some) == 0 {
		return nil
	}
	small, large, err := s.bySize(ctx, server, some)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(small, inspectCount) {
		statuses, err := s.locks.Inspect(ctx, batch...)
		if err != nil {
			return err
		}
		for _, found := range statuses {
			if err := s.show(show.Status{Status: found}); err != nil {
				return err
			}
		}
	}
	values, err := s.read(ctx, server, large, maxValue-1)
	if err != nil {
		return err
	}
	for _, v := range values {
		if err := s.show(show.CutStatus(v.Key, v.value, v.TTL)); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) show(status show.Status) error {
	if !s.filter.wants(status) {
		return nil
	}
	return s.found(status)
}

// beginning is the beginning of a key's value.
type beginning struct {
	show.Status

	value string
}

// read reads the values of keys up to the byte with index last. It leaves out keys that are gone, or not strings any more.
func (s *scan) read(ctx context.Context, server redis.UniversalClient, keys []string, last int64) ([]beginning, error) {
	values, ttls := make([]*redis.StringCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	if err := pipelined(ctx, server, len(keys), func(pipe redis.Pipeliner, i int) {
		values[i], ttls[i] = pipe.GetRange(ctx, keys[i], 0, last), pipe.PTTL(ctx, keys[i])
	}); err != nil {
		return nil, err
	}
	all := make([]beginning, 0, len(keys))
	for i, key := range keys {
		value, err := values[i].Result()
		ttl, err2 := ttls[i].Result()
		if err = cmp.Or(err, err2); moved(err) { // the slot is moving to another server of the Cluster
			value, err = s.client.GetRange(ctx, key, 0, last).Result()
			ttl, err2 = s.client.PTTL(ctx, key).Result()
			err = cmp.Or(err, err2)
		}
		switch {
		case err == nil && ttl == -2: // gone
		case err == nil:
			all = append(all, beginning{show.Status{Status: redislock.Status{Key: key, TTL: atLeastOne(ttl)}}, value})
		case strings.Contains(err.Error(), "WRONGTYPE"):
		default:
			s.forbid(err)
		}
	}
	return all, nil
}

// atLeastOne returns a ttl as the library has it: 0 would stand for a free key.
func atLeastOne(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return time.Millisecond
	}
	return ttl
}

// bySize divides keys by the size of their values: into those that can be read as a whole, and the others.
func (s *scan) bySize(ctx context.Context, server redis.UniversalClient, keys []string) (small, large []string, err error) {
	sizes := make([]*redis.IntCmd, len(keys))
	if err := pipelined(ctx, server, len(keys), func(pipe redis.Pipeliner, i int) {
		sizes[i] = pipe.StrLen(ctx, keys[i])
	}); err != nil {
		return nil, nil, err
	}
	for i, key := range keys {
		size, err := sizes[i].Result()
		if moved(err) {
			size, err = s.client.StrLen(ctx, key).Result()
		}
		switch {
		case err != nil:
			s.forbid(err)
		case size > maxValue:
			large = append(large, key)
		default:
			small = append(small, key)
		}
	}
	return small, large, nil
}

// forbid notes that a key could not be read.
func (s *scan) forbid(err error) {
	s.unreadable++
	if s.why == nil {
		s.why = err
	}
}

// pipelined sends commands together. It returns an error if they could not be sent or were not answered. The caller looks at
// the answer to each of them.
func pipelined(ctx context.Context, server redis.UniversalClient, n int, queue func(redis.Pipeliner, int)) error {
	if n == 0 {
		return nil
	}
	pipe := server.Pipeline()
	for i := range n {
		queue(pipe, i)
	}
	_, err := pipe.Exec(ctx)
	if _, answered := errors.AsType[redis.Error](err); answered {
		return nil
	}
	return err
}

// moved reports whether a server says that the key is on another one.
func moved(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.HasPrefix(text, "MOVED ") || strings.HasPrefix(text, "ASK ") || strings.HasPrefix(text, "TRYAGAIN ")
}
