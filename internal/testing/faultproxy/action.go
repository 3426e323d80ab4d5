package faultproxy

import "time"

// An Action is what the proxy does to a request, its reply or its connection.
// The zero Action does nothing.
type Action struct {
	requestDelay, replyDelay time.Duration
	requestUntil             time.Time

	kind  kind
	bytes int
	text  string
	after time.Duration
}

// And returns an action that does what both do. It panics if neither of them is
// a delay.
func (a Action) And(b Action) Action {
	if a.kind != pass && b.kind != pass {
		panic("faultproxy: two actions of which neither is a delay")
	}
	both := a
	if a.kind == pass {
		both = b
	}
	both.requestDelay = a.requestDelay + b.requestDelay
	both.replyDelay = a.replyDelay + b.replyDelay
	both.requestUntil = a.requestUntil
	if b.requestUntil.After(a.requestUntil) {
		both.requestUntil = b.requestUntil
	}
	return both
}

type kind int

const (
	pass kind = iota
	swallowReply
	cutAfterReplyBytes
	cutAfterRequestBytes
	cutClient
	blackHole
	refuseReply
	repeatRequest
	repeatRequestAfter
)

// SwallowReply forwards the request, so that the server executes it, and drops
// the reply. The connection stays open: what the client sends on it later still
// reaches the server, but nothing reaches the client any more, not even the end
// of the connection.
func SwallowReply() Action { return Action{kind: swallowReply} }

// DelayReply holds the reply back until d after it has reached the proxy. Later
// replies on the same connection stay behind it.
func DelayReply(d time.Duration) Action { return Action{replyDelay: d} }

// DelayRequest holds the request back until d after it has reached the proxy,
// like bytes stuck in the network: the server receives it even if the client
// has closed its connection by then. Later requests on the same connection, and
// its end, stay behind it.
func DelayRequest(d time.Duration) Action { return Action{requestDelay: d} }

// DelayRequestUntil is DelayRequest until a time that is the same for all requests.
func DelayRequestUntil(t time.Time) Action { return Action{requestUntil: t} }

// CutAfterReplyBytes forwards the request, and the first n bytes of its reply,
// and then closes both sides of the connection. With 0 the server has executed
// the request and the client learns nothing.
func CutAfterReplyBytes(n int) Action { return Action{kind: cutAfterReplyBytes, bytes: n} }

// CutAfterRequestBytes forwards the first n bytes of the request, as encoded,
// and closes both sides of the connection. Earlier requests are still executed.
// If n is the size of the request or more, so is this one, without a reply.
func CutAfterRequestBytes(n int) Action { return Action{kind: cutAfterRequestBytes, bytes: n} }

// CutClient closes the client's side of the connection as soon as the request
// has reached the proxy, and forwards the request all the same. With a delay, the
// server executes a request whose client has gone on long ago.
func CutClient() Action { return Action{kind: cutClient} }

// BlackHole leaves the connection open and forwards nothing on it any more in
// either direction: not the request, not replies that are still due, not the
// end of the connection. Requests that the client goes on to send are counted
// by Proxy.Requests, and no rule applies to them.
func BlackHole() Action { return Action{kind: blackHole} }

// RefuseReply does not forward the request, and answers it with the RESP error
// of that text, such as "LOADING Redis is loading the dataset in memory".
func RefuseReply(text string) Action { return Action{kind: refuseReply, text: text} }

// RepeatRequest forwards the request twice, so that the server executes it twice. The client receives the first reply, after
// the server has sent both.
func RepeatRequest() Action { return Action{kind: repeatRequest} }

// RepeatRequestAfter forwards the request, and d later forwards it once more on a connection of its own, also if the client
// has closed its connection by then. Nobody receives the second reply.
func RepeatRequestAfter(d time.Duration) Action { return Action{kind: repeatRequestAfter, after: d} }

// ofRequest returns the part of an action that concerns a request.
func (a Action) ofRequest() Action {
	a.replyDelay = 0
	if a.kind == swallowReply || a.kind == cutAfterReplyBytes {
		a.kind = pass
	}
	return a
}

// ofReply returns the part of an action that concerns a reply.
func (a Action) ofReply() Action {
	a.requestDelay = 0
	if a.kind != swallowReply && a.kind != cutAfterReplyBytes {
		a.kind = pass
	}
	return a
}
