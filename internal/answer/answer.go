package answer

import (
	"errors"
	"slices"
	"strings"
)

// answer is an error that a server has answered with. The errors of go-redis are such ones.
type answer interface {
	error
	RedisError()
}

// Is reports whether err is an answer of a server, and not a failure to get one.
func Is(err error) bool {
	_, ok := errors.AsType[answer](err)
	return ok
}

// HasCode reports whether err is an answer that begins with that code, for example NOPERM.
func HasCode(err error, code string) bool {
	a, ok := errors.AsType[answer](err)
	return ok && strings.HasPrefix(strings.TrimPrefix(a.Error(), "ERR "), code) // KVRocks puts ERR before each
}

// passing lists how the answers that mean "not now" begin. The server has done nothing, and the same call may succeed later
// without a change of its arguments, of the user's rights or of the server's configuration.
//
// The other errors of Redis are not among them, for these reasons:
//   - NOAUTH, WRONGPASS, NOPERM, DENIED (protected mode), WRONGTYPE, CROSSSLOT, NOPROTO and a plain ERR mean that the
//     call, the rights, the key or the server is the wrong one. Waiting hides that from the person who can change it. For
//     a wrong password while go-redis connects, see LoginError.
//   - A client for a Cluster follows MOVED and ASK. A caller who sees one uses a client for a single server.
//   - After NOSCRIPT, the library sends the script at once.
//   - UNKILLABLE, NOTBUSY, NOGOODSLAVE, INPROG, NOMASTERLINK, BUSYKEY, BUSYGROUP, EXECABORT and UNBLOCKED answer commands
//     that no script of the library uses.
var passing = []string{
	"LOADING ",    // it is reading its data, after a start or as a new replica
	"READONLY ",   // it is a replica: a failover is not over, or this client does not know of it yet
	"MASTERDOWN ", // it is a replica that has lost its master, which comes back or is replaced
	"CLUSTERDOWN ",
	"TRYAGAIN ",   // the keys are split while their slot moves
	"NOREPLICAS ", // too few replicas are connected now
	"BUSY ",       // it is running a slow script
	"MISCONF ",    // it could not save its data, and tries that again by itself
	"OOM ",        // its memory is full of other keys, which expire or are deleted
	"max number of clients ",
}

// Passing returns how the answers begin that mean "not now".
func Passing() []string { return slices.Clone(passing) }

// IsPassing reports whether err is an answer that means "not now".
func IsPassing(err error) bool {
	a, ok := errors.AsType[answer](err)
	if !ok {
		return false
	}
	text := strings.TrimPrefix(a.Error(), "ERR ")
	// Redis 6 puts the error of a command behind the place in the script that called it, also if the script returns it.
	if strings.HasPrefix(text, "Error running script") || strings.HasPrefix(text, "@user_script") {
		if _, inner, ok := strings.Cut(text, ": -"); ok {
			text = inner
		}
	}
	return slices.ContainsFunc(passing, func(begin string) bool { return strings.HasPrefix(text, begin) })
}
