package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// Waiter is one waiter in the line of a key; see [Client.Line].
type Waiter struct {
	Token    string    // of the lock that it waits for
	Metadata string    // the first 1,024 bytes of that lock's metadata
	Since    time.Time // about when it came, by the server's clock; on one server, different for each waiter of a line
	Late     bool      // it has missed a sign of life, and may be passed over soon
}

// Line returns the waiters in line for the key, in the order in which they will be served; see [Options.Queue]. It
// omits waiters that are passed over, until they show a sign of life again. It changes nothing, and its result may be
// out of date when it returns.
//
// Of a quorum, it returns the waiters that a majority of the servers have in line. For a key that can have no line, it
// returns none.
//
// Line blocks until Redis answers or ctx ends. It returns an error that wraps [ErrInvalid] for a key that cannot be a
// lock, [ErrClosed] after Close, an error that wraps ctx.Err() if ctx ended first, and any error of Redis, wrapped.
func (c *Client) Line(ctx context.Context, key string) ([]Waiter, error) {
	keys := []string{key}
	if err := c.usable(ctx, keys); err != nil {
		return nil, err
	}
	if c.quorum != nil {
		return c.quorum.line(ctx, key)
	}
	return c.one.waiters(ctx, key)
}

// waiters does the work of Client.Line at one place.
func (p *place) waiters(ctx context.Context, key string) ([]Waiter, error) {
	name := keyname.LineOf(key)
	if name == "" {
		return nil, nil // this key can have no line, so nobody can wait for it
	}
	line := []string{name}
	reply, err := p.ask("line", line, &transport.Call{Script: waitersScript, Keys: []any{name}, Ctx: ctx})
	if err != nil {
		return nil, err
	}
	members, _ := reply.([]any)
	if len(members) == 0 {
		return nil, fault.Failed("line", line, fault.Unexpected(reply))
	}
	now, _ := members[0].(int64)
	marks := map[string]mark{}
	var waiters []Waiter
	for i := 1; i+1 < len(members); i += 2 {
		member, _ := members[i].(string)
		digits, _ := members[i+1].(string)
		score, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return nil, fault.Failed("line", line, err)
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

// mark says until when a waiter is live. The rules are in line.lua.
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

// entryValue returns the value that a waiter's keys are to hold. fields is what follows the id in its entry.
func entryValue(fields string) string {
	parts := strings.SplitN(fields, " ", 4) // wants, ttl, length of the fence key's name, then that name and the value
	if len(parts) < 4 {
		return ""
	}
	length, err := strconv.Atoi(parts[2])
	if err != nil || length < 0 || length > len(parts[3]) {
		return ""
	}
	return parts[3][length:]
}
