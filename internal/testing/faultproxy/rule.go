package faultproxy

import (
	"slices"
	"strings"
)

// A Rule says what happens to which requests.
type Rule struct {
	// Client is the number of the client whose requests the rule applies to; 0
	// is for all clients. See Proxy.Dialer.
	Client int

	// Match reports whether the rule applies to a request, given as the command
	// and its arguments; nil applies to every request. The proxy calls it for
	// one request at a time. It must not keep args or use the proxy.
	Match func(args []string) bool

	// Times is how many requests the rule applies to before it is spent; 0
	// means every one until Remove.
	Times int

	// Action is what the rule does. The zero Action forwards the request and
	// its reply as if there were no rule, so that the rule only observes.
	Action Action
}

// Command matches requests for one of the named commands, in upper or lower
// case.
func Command(names ...string) func(args []string) bool {
	return func(args []string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return strings.EqualFold(name, args[0])
		})
	}
}

// Arg matches requests that have value, such as a key, among the arguments of
// their command.
func Arg(value string) func(args []string) bool {
	return func(args []string) bool { return slices.Contains(args[1:], value) }
}

// isGreeting reports whether a request is one of those that a Redis client sends
// first on a new connection.
var isGreeting = Command("hello", "auth", "client", "select", "readonly")

func matches(match func(args []string) bool, args []string) bool {
	return match == nil || match(args)
}

// A Message is a request, a reply, or a value that the server has sent unasked.
type Message struct {
	Client int  // the number of the client; 0 if it has none
	Reply  bool // the server has sent it

	// Args are the command and the arguments of the request, or of the request
	// that a reply answers. They are nil for a value that was sent unasked.
	Args []string
}

// A Fault is a rule in force. It is safe for concurrent use.
type Fault struct {
	proxy *Proxy
	rule  Rule
	hit   chan struct{} // closed at the first hit

	count int // protected by proxy.mu
}

// Remove takes the rule out of force. What it has done to earlier requests
// stays: a delay runs on, and a silent connection stays silent.
func (f *Fault) Remove() {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	f.proxy.faults = slices.DeleteFunc(f.proxy.faults, func(g *Fault) bool { return f == g })
}

// Count returns how many requests the rule has applied to.
func (f *Fault) Count() int {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	return f.count
}

// Hit returns a channel that is closed when the first request that the rule
// applies to reaches the proxy, which is before the server executes it.
func (f *Fault) Hit() <-chan struct{} { return f.hit }
