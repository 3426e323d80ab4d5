package transport

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// maxJoint bounds the calls of one joint script, and so how long the script blocks the server.
const maxJoint = 200

// leftAlone is a joint script's reply for a call for which it has done nothing.
const leftAlone = int64(-1)

// isStandalone reports whether a server says that it stands alone, and whether that is known. The library does not ask
// the nodes of a Cluster.
func (r *Redis) isStandalone(client serverClient) (standalone, known bool) {
	if r.layout == slots || AlwaysTogether {
		return r.layout != slots, true
	}
	account := r.servers.of(r, client).standalone.Load()
	return account == standaloneYes, account != standaloneUnknown
}

// greeting returns the command that asks a server whether it stands alone, or nil if that is known or makes no difference.
func (r *Redis) greeting(client serverClient, requests []request) *redis.MapStringInterfaceCmd {
	simple := func(q request) bool { return q.calls[0].Simple }
	if _, known := r.isStandalone(client); known || !slices.ContainsFunc(requests, simple) {
		return nil
	}
	return redis.NewMapStringInterfaceCmd(context.Background(), "hello")
}

// meet notes the server's answer to greeting.
func (r *Redis) meet(client serverClient, greeting *redis.MapStringInterfaceCmd) {
	mode, err := greeting.Val()["mode"], greeting.Err()
	if err != nil && !IsAnswer(err) {
		return
	}
	account := standaloneNo
	if mode == "standalone" {
		account = standaloneYes
	}
	r.servers.of(r, client).standalone.Store(account)
}

// requests returns the requests that send the calls to a server.
func (r *Redis) requests(client serverClient, calls []*Call) []request {
	standalone, _ := r.isStandalone(client)
	requests := make([]request, 0, min(len(calls), 8))
	open := map[*Script]int{} // index of the request that has room for more calls, by joint script
	for i, c := range calls {
		joint := c.Script.joint
		if !c.Simple || !standalone || joint == nil {
			requests = append(requests, request{script: c.Script, calls: calls[i : i+1 : i+1]})
			continue
		}
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

func (q *request) isJoint() bool { return q.script != q.calls[0].Script }

// takeApart gives the calls of a joint request their replies, or its error. It returns new requests for the calls that
// the script has left alone, and for those that do not accept their reply.
func (q *request) takeApart(finished func(*Call)) []request {
	replies, _ := q.reply.([]any)
	if q.err == nil && len(replies) != len(q.calls) {
		q.err = fmt.Errorf("unexpected reply %v (%[1]T)", q.reply)
	}
	refused := IsAnswer(q.err)
	var again []request
	for i, c := range q.calls {
		undone := refused || q.err == nil && (replies[i] == leftAlone || c.Accept != nil && !c.Accept(replies[i]))
		switch {
		case undone && !c.IsLost():
			again = append(again, request{script: c.Script, calls: q.calls[i : i+1 : i+1]})
			continue
		case undone || q.err != nil:
			c.departed = c.departed && !undone
			c.Reply, c.Err = nil, cmp.Or(q.err, errLost)
		default:
			c.Reply, c.Err = replies[i], nil
		}
		finished(c)
	}
	return again
}

func newJointCommand(calls []*Call, how *[2]any) command {
	n, each, end := len(calls), calls[0].Script.jointArgs, calls[0].Script.joint
	keys := 2*n + len(end.endKeys)
	args := make([]any, 3+keys, 3+keys+each*n+len(end.endArgs))
	args[0], args[1], args[2] = how[0], how[1], keys
	copy(args[3+2*n:], end.endKeys)
	for i, c := range calls {
		args[3+i], args[3+n+i] = c.Keys[0], c.Spare[0]
		args = append(args, c)
		args = append(args, c.Args[:each-1]...)
	}
	cmd := command{redis.NewCmd(calls[0].Ctx, append(args, end.endArgs...)...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}
