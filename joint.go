package redislock

import (
	"context"
	_ "embed" // for the scripts
	"slices"

	"github.com/redis/go-redis/v9"
)

// A joint script does for several calls of one kind what is simple in them, and says which it has left alone. It costs
// the server and the client about half of what as many scripts of one call each do. Its keys are those of several locks,
// so it is sent to nobody but a server that says that it is one by itself: a node of a Cluster would refuse it, and a
// proxy might send it to the server of its first key, where nobody would look for the others.

var (
	//go:embed obtain_each.lua
	obtainEachSource string
	//go:embed release_each.lua
	releaseEachSource string
)

func init() {
	obtainScript.joint, obtainScript.jointArgs = newScript("obtain", obtainEachSource), 3
	releaseScript.joint, releaseScript.jointArgs = newScript("release", releaseEachSource), 1
}

// maxJoint bounds the calls of one joint script, and with them how long it keeps the server.
const maxJoint = 200

// leftAlone is the reply of a joint script for a call that it has done nothing for.
const leftAlone = int64(-1)

// isAlone reports whether a server is one by itself, by its own account, and whether that is known yet. Nobody asks the
// nodes of a Cluster.
func (n *node) isAlone(server *redis.Client) (alone, known bool) {
	if n.cluster != nil || alwaysTogether {
		return n.cluster == nil, true
	}
	account := n.servers.of(n, server).standalone.Load()
	return account == standaloneYes, account != standaloneUnknown
}

// What a server says of itself.
const (
	standaloneUnknown int32 = iota
	standaloneYes
	standaloneNo
)

// greeting returns the command by which a server says what it is; nil where that is known, or makes no difference.
func (n *node) greeting(server *redis.Client, requests []request) *redis.MapStringInterfaceCmd {
	simple := func(r request) bool { return r.calls[0].simple }
	if _, known := n.isAlone(server); known || !slices.ContainsFunc(requests, simple) {
		return nil
	}
	return redis.NewMapStringInterfaceCmd(context.Background(), "hello")
}

// meet notes what a server has answered to greeting.
func (n *node) meet(server *redis.Client, greeting *redis.MapStringInterfaceCmd) {
	mode, err := greeting.Val()["mode"], greeting.Err()
	if err != nil && !isRedisError(err) {
		return
	}
	account := standaloneNo
	if mode == "standalone" {
		account = standaloneYes
	}
	n.servers.of(n, server).standalone.Store(account)
}

// requests returns what to send to a server for the calls.
func (n *node) requests(server *redis.Client, calls []*call) []request {
	alone, _ := n.isAlone(server)
	requests := make([]request, 0, min(len(calls), 8))
	open := map[*script]int{} // the request that has room for more calls, by the script
	for i, c := range calls {
		if !c.simple || !alone {
			requests = append(requests, request{script: c.script, calls: calls[i : i+1 : i+1]})
			continue
		}
		joint := c.script.joint
		at, found := open[joint]
		if !found || len(requests[at].calls) == maxJoint {
			at = len(requests)
			open[joint] = at
			requests = append(requests, request{script: joint})
		}
		requests[at].calls = append(requests[at].calls, c)
	}
	return requests
}

// takeApart gives the calls of a joint request their replies, or its error, and returns requests for those that it has
// left alone, or refused without the place in line that they want.
func (n *node) takeApart(r request, landed func(*call)) []request {
	replies, _ := r.reply.([]any)
	if r.err == nil && len(replies) != len(r.calls) {
		r.err = unexpected(r.reply)
	}
	refused := isRedisError(r.err)
	var again []request
	for i, c := range r.calls {
		switch {
		case refused || r.err == nil && (replies[i] == leftAlone || replies[i] == int64(0) && c.queues):
			again = append(again, request{script: c.script, calls: r.calls[i : i+1 : i+1]})
			continue
		case r.err != nil:
			c.reply, c.err = nil, r.err
		default:
			c.reply, c.err = replies[i], nil
		}
		landed(c)
	}
	return again
}

func newJointCommand(calls []*call, how [2]any) command {
	n, each := len(calls), calls[0].script.jointArgs
	args := make([]any, 3+2*n, 3+(2+each)*n)
	args[0], args[1], args[2] = how[0], how[1], 2*n
	for i, c := range calls {
		args[3+i], args[3+n+i] = c.boxed[0], c.boxed[1]
		args = append(args, c)
		args = append(args, c.args[:each-1]...)
	}
	cmd := command{redis.NewCmd(calls[0].ctx, args...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}
