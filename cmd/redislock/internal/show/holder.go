package show

import (
	"fmt"
	"strings"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// Holder says in a few words who holds a key: what the metadata says, or else the token.
func Holder(s redislock.Status) string {
	var who strings.Builder
	fields, _ := Fields(s.Metadata)
	host, pid := Value(fields, "host"), Value(fields, "pid")
	user, command := Value(fields, "user"), Value(fields, "command")
	switch {
	case host != "" && pid != "":
		if user != "" {
			who.WriteString(term.Escape(user) + " on ")
		}
		fmt.Fprintf(&who, "%s, pid %s", term.Escape(host), term.Escape(pid))
		if command != "" {
			fmt.Fprintf(&who, " (%s)", term.Shorten(term.Escape(command), 60))
		}
	case s.Metadata != "":
		who.WriteString(term.Shorten(Metadata(s.Metadata), 100))
	case s.Token != "":
		who.WriteString(term.Shorten(term.Escape(s.Token), 60))
	default:
		who.WriteString("something that is not a lock")
	}
	switch {
	case s.TTL < 0:
		who.WriteString(", without an expiry")
	case s.TTL > 0:
		fmt.Fprintf(&who, ", for %s more", Duration(s.TTL))
	}
	if s.Waiters > 0 {
		fmt.Fprintf(&who, "; %d in line", s.Waiters)
	}
	return who.String()
}
