package transport

import (
	"cmp"
	"fmt"
	"slices"
)

// maxJoint bounds the calls of one joint script, and so how long the script blocks the server.
const maxJoint = 200

// leftAlone is a joint script's reply for a call for which it has done nothing.
const leftAlone = int64(-1)

// isStandalone reports whether a server says that it stands alone, and whether that is known. The library does not ask
// the nodes of a Cluster.
func (r *Redis) isStandalone(node Node) (standalone, known bool) {
	if r.Reach == Slots || AlwaysTogether {
		return r.Reach != Slots, true
	}
	standing := Standing(r.servers.of(r, node).standing.Load())
	return standing == StandsAlone, standing != StandingUnknown
}

// greets reports whether to ask a server whether it stands alone: if that is not known, and makes a difference.
func (r *Redis) greets(node Node, requests []Request) bool {
	simple := func(q Request) bool { return q.Calls[0].Simple }
	_, known := r.isStandalone(node)
	return !known && slices.ContainsFunc(requests, simple)
}

// requests returns the requests that send the calls to a server.
func (r *Redis) requests(node Node, calls []*Call) []Request {
	standalone, _ := r.isStandalone(node)
	requests := make([]Request, 0, min(len(calls), 8))
	open := map[*Script]int{} // index of the request that has room for more calls, by joint script
	for i, c := range calls {
		joint := c.Script.joint
		if !c.Simple || !standalone || joint == nil {
			requests = append(requests, Request{Script: c.Script, Calls: calls[i : i+1 : i+1]})
			continue
		}
		at, found := open[joint]
		if !found || len(requests[at].Calls) == maxJoint {
			at = len(requests)
			open[joint] = at
			requests = append(requests, Request{Script: joint})
		}
		requests[at].Calls = append(requests[at].Calls, c)
	}
	return requests
}

func (q *Request) isJoint() bool { return q.Script != q.Calls[0].Script }

// takeApart gives the calls of a joint request their replies, or its error. It returns new requests for the calls that
// the script has left alone, and for those that do not accept their reply.
func (q *Request) takeApart(finished func(*Call)) []Request {
	replies, _ := q.Reply.([]any)
	if q.Err == nil && len(replies) != len(q.Calls) {
		q.Err = fmt.Errorf("unexpected reply %v (%[1]T)", q.Reply)
	}
	refused := IsAnswer(q.Err)
	var again []Request
	for i, c := range q.Calls {
		undone := refused || q.Err == nil && (replies[i] == leftAlone || c.Accept != nil && !c.Accept(replies[i]))
		switch {
		case undone && !c.IsLost():
			again = append(again, Request{Script: c.Script, Calls: q.Calls[i : i+1 : i+1]})
			continue
		case undone || q.Err != nil:
			c.departed = c.departed && !undone
			c.Reply, c.Err = nil, cmp.Or(q.Err, errLost)
		default:
			c.Reply, c.Err = replies[i], nil
		}
		finished(c)
	}
	return again
}

// Command returns the arguments of the command that sends the request, as Call.Command does. token returns what stands in
// the place of the token of a call.
func (q *Request) Command(token func(*Call) any) []any {
	if !q.isJoint() {
		return q.Calls[0].Command(q.Whole, token(q.Calls[0]))
	}
	how, n, each, end := q.Script.how(q.Whole), len(q.Calls), q.Calls[0].Script.jointArgs, q.Script
	keys := 2*n + len(end.endKeys)
	args := make([]any, 3+keys, 3+keys+each*n+len(end.endArgs))
	args[0], args[1], args[2] = how[0], how[1], keys
	copy(args[3+2*n:], end.endKeys)
	for i, c := range q.Calls {
		args[3+i], args[3+n+i] = c.Keys[0], c.Spare[0]
		args = append(args, token(c))
		args = append(args, c.Args[:each-1]...)
	}
	return append(args, end.endArgs...)
}

// Strings returns KEYS and ARGV of the request as text.
func (q *Request) Strings() (keys, args []string) {
	if !q.isJoint() {
		return q.Calls[0].Strings()
	}
	n, each, end := len(q.Calls), q.Calls[0].Script.jointArgs, q.Script
	keys, args = make([]string, 2*n, 2*n+len(end.endKeys)), make([]string, 0, each*n+len(end.endArgs))
	for i, c := range q.Calls {
		keys[i], keys[n+i] = c.Keys[0].(string), c.Spare[0].(string)
		args = appendText(append(args, c.Token), c.Args[:each-1])
	}
	return appendText(keys, end.endKeys), appendText(args, end.endArgs)
}
