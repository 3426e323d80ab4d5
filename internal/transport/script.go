package transport

import (
	"crypto/sha1"
	"encoding/hex"
)

// Script is a Lua script. It must be safe to run more often than its caller asked, because a call whose reply is lost is
// sent again.
type Script struct {
	// Yields says that calls of scripts that do not yield never wait behind calls of this one.
	Yields bool

	eval    [2]any // EVAL and the source, boxed once instead of for each call
	evalsha [2]any // EVALSHA and the hash

	joint     *Script // does several simple calls at once; nil for none
	jointArgs int     // how many of ARGV the joint script takes from each call, the token included

	endKeys, endArgs []any // what End has set; nil for nothing
}

// NewScript returns a script with the given source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{
		eval:    [2]any{"eval", source},
		evalsha: [2]any{"evalsha", hex.EncodeToString(sum[:])},
	}
}

// how returns the command that runs the script, and what it calls the script.
func (s *Script) how(whole bool) *[2]any {
	if whole {
		return &s.eval
	}
	return &s.evalsha
}

// Text returns the source and the hash.
func (s *Script) Text() (source, hash string) { return s.eval[1].(string), s.evalsha[1].(string) }

// Join sets the script's joint script, which does several of its calls at once, and returns the script. The joint
// script receives one lock key of each call, then one spare key of each, and then the first args of ARGV of each. It
// returns one reply per call, in order: -1 if it has done nothing for a call and leaves that call to the script itself.
// The script has defaults for the rest of ARGV, which are those of a simple call.
//
// A joint script costs the server and the client about half of what the calls would cost one by one. Its keys belong to
// several locks, so it is sent only to a server that says that it stands alone. A node of a Cluster would refuse it,
// and a proxy might send it to the server of its first key, where nobody would look for the others.
func (s *Script) Join(source string, args int) *Script {
	s.joint, s.jointArgs = NewScript(source), args
	return s
}

// End makes every call of the script, and of its joint script, end its KEYS with key and its ARGV with arg, and returns the
// script.
func (s *Script) End(key string, arg any) *Script {
	s.endKeys, s.endArgs = []any{key}, []any{arg}
	if s.joint != nil {
		s.joint.End(key, arg)
	}
	return s
}
