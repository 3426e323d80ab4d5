package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Who says in a few words who has a token: what the metadata says, or else the token.
func Who(token, metadata string) string {
	fields, _ := Fields(metadata)
	host, pid := Value(fields, "host"), Value(fields, "pid")
	user, command := Value(fields, "user"), Value(fields, "command")
	switch {
	case host != "" && pid != "":
		var who strings.Builder
		if user != "" {
			who.WriteString(term.Escape(user) + "@")
		}
		fmt.Fprintf(&who, "%s, pid %s", term.Escape(host), term.Escape(pid))
		if command != "" {
			fmt.Fprintf(&who, " (%s)", term.Shorten(term.Escape(command), 60))
		}
		return who.String()
	case Metadata(metadata) != "":
		return term.Shorten(Metadata(metadata), 100)
	case token != "":
		return term.Shorten(term.Escape(token), 60)
	}
	return "something that is not a lock"
}

// Holder says in a few words who holds a key, for how long, and how many wait for it.
func Holder(s redislock.Status) string {
	who := Who(s.Token, s.Metadata) + left(s.TTL)
	if s.Waiters > 0 {
		who += fmt.Sprintf("; %d in line", s.Waiters)
	}
	return who
}

// InTheWay says who is in the way of a caller that is refused a lock.
func InTheWay(e *redislock.RefusedError) string {
	switch {
	case e.Token == "" && e.TTL == 0 && e.Ahead > 0:
		return fmt.Sprintf("it is the turn of others; %d ahead of you", e.Ahead)
	case e.Token == "" && e.TTL == 0:
		return "it is the turn of others in line"
	}
	who := "held by " + Who(e.Token, e.Metadata) + left(e.TTL)
	if e.Ahead > 0 {
		who += fmt.Sprintf("; %d ahead of you", e.Ahead)
	}
	return who
}

// left says what remains of a ttl as in [redislock.Status].
func left(ttl time.Duration) string {
	switch {
	case ttl < 0:
		return ", without an expiry"
	case ttl > 0:
		return ", " + Duration(ttl) + " left"
	}
	return ""
}
