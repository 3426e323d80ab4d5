package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

// Waiter is somebody who waits in line for a key; see [Client.Line].
type Waiter struct {
	Token    string    // that its lock will have
	Metadata string    // the first 1,024 bytes of what it will store
	Since    time.Time // about when it came, by the clock of the server; no two in a line have the same
	Late     bool      // it was not heard of when it should have been, and may be passed over soon
}

// Line returns who waits for the key in line, the first to be served first; see [Options.Queue]. Those who
// are passed over are left out until they are heard of again. It takes no part in the waiting and changes nothing; what it
// tells may have changed by the time it is read.
//
// It blocks until Redis answers or ctx ends, and returns [ErrInvalid] for a key that cannot be a lock, [ErrClosed] after
// Close, an error that wraps ctx.Err() if ctx ended first, and what Redis reported, wrapped.
func (c *Client) Line(ctx context.Context, key string) ([]Waiter, error) {
	keys := []string{key}
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	name := lineOf(key)
	if name == "" {
		return nil, nil // no key that could have one: nobody can wait
	}
	line := []string{name}
	reply, err := c.ask("line", line, &transport.Call{Script: waitersScript, Keys: []any{name}, Ctx: ctx})
	if err != nil {
		return nil, err
	}
	members, _ := reply.([]any)
	if len(members) == 0 {
		return nil, failed("line", line, unexpected(reply))
	}
	now, _ := members[0].(int64)
	marks := map[string]mark{}
	var waiters []Waiter
	for i := 1; i+1 < len(members); i += 2 {
		member, _ := members[i].(string)
		digits, _ := members[i+1].(string)
		score, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return nil, failed("line", line, err)
		}
		if id, is := strings.CutPrefix(member, "~"); is {
			marks[id] = readMark(int64(-score))
			continue
		}
		id, rest, _ := strings.Cut(member, " ")
		if m := marks[id]; m.live(now) {
			w := Waiter{Since: time.UnixMicro(int64(score)), Late: m.late(now)}
			w.Token, w.Metadata = splitValue(entryValue(rest))
			waiters = append(waiters, w)
		}
	}
	return waiters, nil
}

// mark says until when a waiter is live; line.lua has the rules.
type mark struct {
	deadline, life int64 // in ms
}

func readMark(packed int64) mark {
	return mark{deadline: packed / 4096, life: packed % 4096 / 2 * 1000}
}

func (m mark) live(now int64) bool {
	return m.deadline >= now && m.deadline-now <= m.life+1000
}

func (m mark) late(now int64) bool { return 3*(m.deadline-now) < m.life }

// entryValue returns what the keys of a waiter are to hold, from what follows the id in its entry.
func entryValue(fields string) string {
	parts := strings.SplitN(fields, " ", 4) // wants, ttl, length of the name of the fence key, that and the value
	if len(parts) < 4 {
		return ""
	}
	length, err := strconv.Atoi(parts[2])
	if err != nil || length < 0 || length > len(parts[3]) {
		return ""
	}
	return parts[3][length:]
}
