// Package marker reads and writes the key by which a guard notices that a Redis has forgotten. guard.lua describes that key.
// The package knows nothing of flags and commands.
package marker

import (
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

// Marker is the marker of a database, and what its server says about itself.
type Marker struct {
	Text  string        // as it is stored; "" if there is none
	Term  string        // the term in which it was written
	Grace time.Duration // for how long the guard closes: the longest ttl plus deposed
	Left  time.Duration // until it opens; 0 if the marker does not say that it is closed

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
	format     = regexp.MustCompile(`^(\w+) (\d+)(?: (\d+))?$`)
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
	if parts := format.FindStringSubmatch(m.Text); parts != nil {
		m.Term, m.Grace = parts[1], millis(parts[2])
		now := clock.Val()
		if clock.Err() != nil { // an ACL may forbid TIME
			now = time.Now()
		}
		if parts[3] != "" {
			left := time.Unix(0, 0).Add(millis(parts[3])).Sub(now).Round(time.Millisecond)
			m.Left = min(max(left, 0), m.Grace) // the clock may have been set back
		}
	}
	return m, nil
}

// GraceOf returns for how long the guard of a database closes; 0 if it has no marker. Unlike Read, it needs no right but that
// to read the key.
func GraceOf(ctx context.Context, server redis.Cmdable) (time.Duration, error) {
	text, err := server.Get(ctx, keyname.GuardMarker).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if parts := format.FindStringSubmatch(text); parts != nil {
		return millis(parts[2]), nil
	}
	return 0, err
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

// SetOpen opens a guard that the caller has seen as m. From then on it closes for grace, or for longer if m says so.
func SetOpen(ctx context.Context, server redis.Scripter, m Marker, grace time.Duration) error {
	ms := (max(grace, m.Grace) + time.Millisecond - 1).Milliseconds()
	done, err := redis.NewScript(openSource).Run(ctx, server, []string{keyname.GuardMarker}, m.Text, m.Now,
		fmt.Sprintf("%s %d", m.Now, ms)).Bool()
	if err == nil && !done {
		err = ErrChanged
	}
	return err
}

// Replace deletes keys that a token has, or that are gone, while the guard is closed. Unless value is "", it lets that value
// have the keys until the guard opens. It returns how long that takes; 0 if nothing was done, because the guard is not
// closed. If other tokens have some keys, Replace does nothing and returns those keys.
func Replace(
	ctx context.Context, server redis.Scripter, keys []string, token, value string,
) (left time.Duration, others []string, err error) {
	all := append(append([]string{}, keys...), keyname.GuardMarker)
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
