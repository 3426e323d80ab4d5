package transport

import (
	"crypto/sha1"
	"encoding/hex"
)

// Script is a Lua script. It must bear being run more often than it was asked for: a call whose reply is lost is sent
// again.
type Script struct {
	// Yields says that its calls make way for others: those of scripts that do not yield never wait behind them.
	Yields bool

	eval    [2]any // EVAL and the source, boxed once instead of for each call
	evalsha [2]any // EVALSHA and the hash

	joint     *Script // for several simple calls at once; nil for none
	jointArgs int     // how many of ARGV it takes from each call, the token included
}

// NewScript returns a script with that source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{
		eval:    [2]any{"eval", source},
		evalsha: [2]any{"evalsha", hex.EncodeToString(sum[:])},
	}
}

// Join gives the script one for several of its calls at once, and returns the script. The joint script is given one
// lock key of each call, then one spare key of each, and then the first args of ARGV of each. It returns one reply for
// each, in their order, which is -1 where it has done nothing for a call and leaves that to the script itself.
//
// A joint script costs the server and the client about half of what as many scripts of one call each do. Its keys are
// those of several locks, so it is sent only to a server that says that it stands alone: a node of a Cluster would
// refuse it, and a proxy might send it to the server of its first key, where nobody would look for the others.
func (s *Script) Join(source string, args int) *Script {
	s.joint, s.jointArgs = NewScript(source), args
	return s
}
