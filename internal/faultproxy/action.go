package faultproxy

import "time"

// An Action is what a rule does to a request, its reply or its connection.
type Action struct {
	kind  kind
	delay time.Duration
	bytes int
	text  string
}

type kind int

const (
	pass kind = iota
	swallowReply
	delayReply
	delayRequest
	cutAfterReplyBytes
	cutAfterRequestBytes
	blackHole
	refuseReply
	repeatRequest
)

// SwallowReply forwards the request, so that the server executes it, and drops the reply. The connection stays open: what
// the client sends on it later still reaches the server, but nothing reaches the client any more, not even the end of the
// connection.
func SwallowReply() Action { return Action{kind: swallowReply} }

// DelayReply holds the reply back until d after it has reached the proxy. Later
// replies on the same connection stay behind it.
func DelayReply(d time.Duration) Action { return Action{kind: delayReply, delay: d} }

// DelayRequest holds the request back until d after it has reached the proxy, like bytes stuck in the network: the server
// receives it even if the client has closed its connection by then. Later requests on the same connection, and its end, stay
// behind it.
func DelayRequest(d time.Duration) Action { return Action{kind: delayRequest, delay: d} }

// CutAfterReplyBytes forwards the request, and the first n bytes of its reply, and then closes both sides of the connection.
// With 0 the server has executed the request and the client learns nothing.
func CutAfterReplyBytes(n int) Action { return Action{kind: cutAfterReplyBytes, bytes: n} }

// CutAfterRequestBytes forwards the first n bytes of the request, as encoded, and closes both sides of the connection.
// Earlier requests are still executed. If n is the size of the request or more, so is this one, without a reply.
func CutAfterRequestBytes(n int) Action { return Action{kind: cutAfterRequestBytes, bytes: n} }

// BlackHole leaves the connection open and forwards nothing on it any more in either direction: not the request, not replies
// that are still due, not the end of the connection. Requests that the client goes on to send are counted by Proxy.Requests,
// and no rule applies to them.
func BlackHole() Action { return Action{kind: blackHole} }

// RefuseReply does not forward the request, and answers it with the RESP error
// of that text, such as "LOADING Redis is loading the dataset in memory".
func RefuseReply(text string) Action { return Action{kind: refuseReply, text: text} }

// RepeatRequest forwards the request twice, so that the server executes it twice. The client receives the first reply, after
// the server has sent both.
func RepeatRequest() Action { return Action{kind: repeatRequest} }
