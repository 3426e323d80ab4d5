package show

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/survey"
	"github.com/redislock/redislock/internal/tree"
	"github.com/redislock/redislock/internal/words"
)

// Who says in a few words who has a token: what the metadata says, or else the token.
func Who(token, metadata string) string {
	token, metadata = survey.Apart(token, metadata)
	o := OwnerOf(metadata)
	switch {
	case o.Who != "" && o.PID != "" && o.Command != "":
		return fmt.Sprintf("%s, pid %s (%s)", o.Who, o.PID, term.Shorten(o.Command, 60))
	case o.Who != "" && o.PID != "":
		return fmt.Sprintf("%s, pid %s", o.Who, o.PID)
	case words.Metadata(metadata) != "":
		return term.Shorten(words.Metadata(metadata), 100)
	case token != "":
		return term.Shorten(words.Escape(token), 60)
	}
	return "something that is not a lock"
}

// Split says in a few words that no majority of a quorum holds a key, although some servers do; "" if that is not so.
func Split(s redislock.Status) string {
	if s.Token != "" || s.TTL != 0 {
		return ""
	}
	tokens, held := map[string]bool{}, 0
	for _, place := range s.Places {
		if place.TTL != 0 {
			tokens[place.Token] = true
			held++
		}
	}
	switch {
	case held == 0:
		return ""
	case len(tokens) == 1:
		return fmt.Sprintf("no majority: on %d of %d servers", held, len(s.Places))
	}
	return fmt.Sprintf("no majority: %d holders on %d of %d servers", len(tokens), held, len(s.Places))
}

// Holder says in a few words who holds a key, for how long, and how many wait for it.
func Holder(s redislock.Status) string {
	who := Who(s.Token, s.Metadata) + more(s.HolderCount) + left(s.TTL) + waits(s.Waits)
	if s.Waiters == 0 {
		return who
	}
	return who + fmt.Sprintf("; %d in line", s.Waiters)
}

// Closed says that the guard is closed, and for how much longer.
func Closed(left time.Duration) string {
	return "the guard is closed for another " + words.Duration(left) + ", because Redis may have forgotten locks"
}

// InTheWay says who, or what, is in the way of a caller that is refused a lock.
func InTheWay(e *redislock.RefusedError) string {
	if e.Closed > 0 {
		return Closed(e.Closed)
	}
	who, free := "held by "+Who(e.Token, e.Metadata)+more(e.Holders)+left(e.TTL)+waits(e.Waits), e.Token == "" && e.TTL == 0
	if free {
		who = "it is the turn of others"
	}
	switch {
	case e.Ahead > 0:
		who += fmt.Sprintf("; %d ahead of you", e.Ahead)
	case free:
		who += " in line"
	}
	return who
}

// Blocker says in a few words which key is in the way and who holds it, and how long ago it was renewed. A negative renewed
// means that nobody has seen a renewal: then it says what remains of the ttl. passed is the time since the ttl was read.
func Blocker(e *redislock.RefusedError, renewed, passed time.Duration) string {
	text := words.Escape(e.Key) + ": "
	switch {
	case e.Token == "" && e.TTL == 0:
		return text + "it is the turn of others in line"
	case e.Token == "":
		return text + "something that is not a lock"
	}
	token, metadata := survey.Apart(e.Token, e.Metadata)
	if who := cmp.Or(OwnerOf(metadata).Who, words.Metadata(metadata)); who != "" {
		text += who + " "
	}
	text += words.Escape(fault.Short(token)) + more(e.Holders)
	switch {
	case renewed >= 0:
		text += ", renewed " + words.Seconds(renewed) + " ago"
	case e.TTL > 0:
		text += left(max(e.TTL-passed, time.Millisecond))
	default:
		text += left(e.TTL)
	}
	return text + waits(e.Waits)
}

// waits says for which keys a holder waits itself.
func waits(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return ", waits " + itself(keys)
}

func itself(keys []string) string {
	shown := make([]string, len(keys))
	for i, key := range keys {
		shown[i] = words.Escape(key)
	}
	return "itself for " + strings.Join(shown, ", ")
}

// left says what remains of a ttl as in [redislock.Status].
func left(ttl time.Duration) string {
	switch {
	case ttl < 0:
		return ", without an expiry"
	case ttl > 0:
		return ", " + words.Duration(ttl) + " left"
	}
	return ""
}

// Owner is what metadata tells about who holds a lock, safe to print; "" for what it does not tell.
type Owner struct {
	Who          string // user@host, or one of them, or metadata that is not a JSON object
	PID, Command string
	Since        time.Time // when the lock was acquired, by the clock of that host
}

// OwnerOf reads metadata that run or redislock.ProcessMetadata has written, or anything like it.
func OwnerOf(metadata string) Owner {
	found, isObject := tree.OwnerOf(metadata)
	if !isObject {
		return Owner{Who: words.Escape(metadata)}
	}
	return Owner{
		Who: words.Escape(found.Name()), PID: words.Escape(found.PID), Command: words.Escape(found.Command), Since: found.Since,
	}
}

// TTL writes the remaining ttl of a key, as in [redislock.Status].
func TTL(ttl time.Duration) string {
	if ttl < 0 {
		return "none"
	}
	return words.Duration(ttl)
}
