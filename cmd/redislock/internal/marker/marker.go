// Package marker reads and writes the key by which a guard notices that a Redis has forgotten. The library's
// internal/script/marker.lua describes that key. The package knows nothing of flags and commands.
package marker

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/keyname"
)

// State is what a guard does at a server.
type State string

// The states, as JSON has them.
const (
	None    State = "none"    // no program with a guard has locked in this database since it was empty
	Open    State = "open"    // nothing has been lost since the present term of the server began
	Closed  State = "closed"  // nothing new is granted
	Closing State = "closing" // the marker does not match the server, so the next lock closes the guard
	Replica State = "replica" // the server grants nothing
	Unknown State = "unknown" // this user is not allowed to see the term of the server
)

// Lengths are what a marker says about the guards of all programs. They are 0 without a marker.
type Lengths struct {
	Grace   time.Duration // for how long the guard closes: the longest ttl plus Deposed
	Deposed time.Duration // for how long a deposed master may go on granting
}

// MaxTTL returns the longest ttl that a lock may have.
func (l Lengths) MaxTTL() time.Duration { return l.Grace - l.Deposed }

// Marker is the marker of a database, and what its server says about itself.
type Marker struct {
	Lengths

	Text string        // as it is stored; "" if there is none
	Term string        // the term in which it was written
	Left time.Duration // until it opens; 0 if the marker does not say that it is closed

	Role string // of the server; "" if this user may not run INFO
	Now  string // the present term of the server; likewise
}

// State returns what the guard does.
func (m Marker) State() State {
	switch {
	case m.Role == "":
		return Unknown
	case m.Role != "master":
		return Replica
	case m.Text == "":
		return None
	case m.Term != m.Now:
		return Closing
	case m.Left > 0:
		return Closed
	}
	return Open
}

// Closed returns for how much longer nothing new is granted; 0 if the guard is open, or if nobody can tell.
func (m Marker) Closed() time.Duration {
	switch m.State() {
	case Closing:
		return m.Grace // after the next lock
	case Closed:
		return m.Left
	}
	return 0
}

var (
	format     = regexp.MustCompile(`^(\w+) (\d+) (\d+)(?: (\d+))?$`)
	roleField  = regexp.MustCompile(`(?m)^role:(\w+)`)
	replidOfIt = regexp.MustCompile(`(?m)^master_replid:(\w+)`)
)

// Read reads the marker. Its error is that of GET.
func Read(ctx context.Context, server redis.Cmdable) (m Marker, err error) {
	pipe := server.Pipeline()
	stored, info, clock := pipe.Get(ctx, keyname.GuardMarker), pipe.Info(ctx, "replication"), pipe.Time(ctx)
	_, _ = pipe.Exec(ctx) // each answer tells
	if m.Text, err = stored.Result(); err != nil && !errors.Is(err, redis.Nil) {
		return Marker{}, err
	}
	if found := roleField.FindStringSubmatch(info.Val()); found != nil {
		m.Role = found[1]
	}
	if found := replidOfIt.FindStringSubmatch(info.Val()); found != nil {
		m.Now = found[1]
	} else {
		m.Role = "" // a server without terms
	}
	if parts, lengths := parse(m.Text); parts != nil {
		m.Term, m.Lengths = parts[1], lengths
		now := clock.Val()
		if clock.Err() != nil { // an ACL may forbid TIME
			now = time.Now()
		}
		if parts[4] != "" {
			left := time.Unix(0, 0).Add(millis(parts[4])).Sub(now).Round(time.Millisecond)
			m.Left = min(max(left, 0), m.Grace) // the clock may have been set back
		}
	}
	return m, nil
}

// LengthsOf returns the lengths in the marker of a database. Unlike Read, it needs no right but that to read the key.
func LengthsOf(ctx context.Context, server redis.Cmdable) (Lengths, error) {
	text, err := server.Get(ctx, keyname.GuardMarker).Result()
	if errors.Is(err, redis.Nil) {
		return Lengths{}, nil
	}
	_, lengths := parse(text)
	return lengths, err
}

// parse returns the words of a marker behind the whole of it, and its lengths; nil if no script has written that.
func parse(text string) (parts []string, lengths Lengths) {
	if parts = format.FindStringSubmatch(text); parts == nil {
		return nil, Lengths{}
	}
	if lengths = (Lengths{Grace: millis(parts[2]), Deposed: millis(parts[3])}); lengths.MaxTTL() <= 0 {
		return nil, Lengths{}
	}
	return parts, lengths
}

func millis(text string) time.Duration {
	ms, _ := strconv.ParseInt(text, 10, 64) // digits; a number that is too large becomes the largest one
	return time.Duration(min(ms, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}

var (
	//go:embed open.lua
	openSource string
	//go:embed replace.lua
	replaceSource string
)

// ErrChanged is the error of a SetOpen that found another marker or another term than the caller.
var ErrChanged = errors.New("the server or its marker has changed meanwhile")

// SetOpen opens a guard that the caller has seen as m. From then on it has these lengths, or the longer ones
// that m says.
func SetOpen(ctx context.Context, server redis.Scripter, m Marker, l Lengths) error {
	ms := func(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }
	done, err := redis.NewScript(openSource).Run(ctx, server, []string{keyname.GuardMarker}, m.Text, m.Now,
		fmt.Sprintf("%s %d %d", m.Now, ms(max(l.Grace, m.Grace)), ms(max(l.Deposed, m.Deposed)))).Bool()
	if err == nil && !done {
		err = ErrChanged
	}
	return err
}

// Replace deletes keys that a token has, or that are gone, while the guard is closed. Of a shared key, it deletes the hold
// of the token. Unless value is "", it lets that value have the keys until the guard opens, and shared keys have no other
// holders any more. It returns how long that takes; 0 if nothing was done, because the guard is not
// closed. If other tokens have some keys, Replace does nothing and returns those keys.
func Replace(
	ctx context.Context, server redis.Scripter, keys []string, token, value string,
) (left time.Duration, others []string, err error) {
	all := append([]string{}, keys...)
	for _, key := range keys {
		all = append(all, cmp.Or(keyname.HouseOf(key), key)) // a key that can have no house is not shared
	}
	all = append(all, keyname.GuardMarker)
	reply, err := redis.NewScript(replaceSource).Run(ctx, server, all, token, value).Result()
	switch reply := reply.(type) {
	case int64:
		left = time.Duration(reply) * time.Millisecond
	case []any:
		for _, i := range reply {
			others = append(others, keys[i.(int64)-1])
		}
	}
	return left, others, err
}
