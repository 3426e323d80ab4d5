package transport

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Call is one script on its way to a Redis, with all its resends. Set the fields down to Tag, and do not touch the call
// again until it has finished.
type Call struct {
	Script *Script
	Keys   []any  // KEYS, each a string
	Spare  []any  // further KEYS; the script still does its main work without them
	Token  string // ARGV[1]; "" for a script that takes none
	Args   []any  // the rest of ARGV; see SetArgs

	// Simple says that the joint script may run the call: it has one key and one spare key.
	Simple bool
	// Alone says that the call shares no round trip. A Link sets it.
	Alone bool

	// These are here so that a Call fits its size class.
	departed bool        // the present sending has reached a connection
	bulk     bool        // the call is part of a pipeline, so an error while it is written would fail the others
	counted  atomic.Bool // the call counts as under way to its server; see server.enter

	// Accept reports whether the reply of a joint script finishes the call. Nil accepts every reply, and says that the
	// arguments that the joint script takes are enough: the script itself gets no others.
	Accept func(reply any) bool

	// Ctx is done when nobody wants the call any more. From then on, the call is not sent or resent.
	Ctx context.Context
	// GiveUp ends the resending; the zero time leaves the end to the Redis client's MaxRetries.
	GiveUp time.Time
	// Hurry ends the wait before the next sending when a value is received from it; nil never does.
	Hurry <-chan struct{}
	// Tag is for the caller's own use.
	Tag any

	// The result. Read it when the call has finished. First and Doubtful may be set beforehand, from an earlier call for
	// the same purpose.
	Reply    any
	Err      error
	First    time.Time // when the first sending was written that was not refused, or else the last; zero if none was written
	Sent     time.Time // when it was last written
	Resends  int32     // how often it was sent again
	Doubtful bool      // a sending without a reply may have been executed, or may still be executed
	Copied   bool      // of a call that was lost, which may have been executed, or may still be; see DoAnew

	Rewritten bool // by a hook, while the call went by itself: Conn.Send sets it
	leaves    bool // Do leaves the call if it is lost; see DoAnew

	room      [4]any // saves an allocation: most calls need no more room
	tokenRoom [24]byte

	persistent atomic.Bool  // see Persist
	state      atomic.Int32 // of the present sending; see waiting

	failure atomic.Pointer[error] // see Failure

	// The ctx of the present sending, if that is not Ctx; others may read Ctx, so it does not change. It is a pointer, because
	// a context would take the Call out of its size class, and each obtain and release allocates a Call.
	limited *context.Context

	Carrier any // for the Conn's own use, while the call goes by itself; nil otherwise

	lane *lane         // the lane in which the call goes; nil for none
	trip *trip         // the trip that the call makes by itself in the lane; nil for none
	done chan struct{} // closed when the call has finished; nil if Do returns only then
}

// SetArgs sets Args.
func (c *Call) SetArgs(args ...any) { c.Args = append(c.room[:0], args...) }

// args returns those of Args that the script gets.
func (c *Call) args() []any {
	if c.Simple && c.Accept == nil && c.Script.joint != nil {
		return c.Args[:c.Script.jointArgs-1] // each further one would cost 0.3 µs
	}
	return c.Args
}

// Where the present sending of a call is. While it is departed, the watch may make it lost, which is final: nothing more
// is sent for the call, but it still gets the result of that sending. Everything else is up to the goroutine that sends.
const (
	waiting  int32 = iota // for a connection
	departed              // written, and not answered yet
	landed                // it has an answer or an error
	lost                  // its connection is dead
)

// land ends the present sending.
func (c *Call) land() { c.state.CompareAndSwap(departed, landed) }

// IsLost reports whether the connection of the call has died. It may be called at any time.
func (c *Call) IsLost() bool { return c.state.Load() == lost }

// anew returns a call for the same purpose as one that was lost.
func (c *Call) anew() *Call {
	return &Call{
		Script: c.Script, Keys: c.Keys, Spare: c.Spare, Token: c.Token, Args: c.Args, Simple: c.Simple, Alone: c.Alone,
		Accept: c.Accept, Ctx: c.Ctx, GiveUp: c.GiveUp, Hurry: c.Hurry, Tag: c.Tag,
		First: c.First, Resends: c.Resends + 1, Copied: true,
	}
}

// Persist lets resending go on until GiveUp, past the Redis client's MaxRetries. It may be called at any time.
func (c *Call) Persist() { c.persistent.Store(true) }

// IsAnswered reports whether the server has answered a call that has finished, with a reply or an error.
func (c *Call) IsAnswered() bool { return c.Err == nil || IsAnswer(c.Err) }

// Failure returns the error of the last sending that has failed, or nil if none has. It may be called at any time.
func (c *Call) Failure() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Done returns a channel that is closed when the call has finished. It is nil unless Do has returned false for the
// call, or another goroutine sends it.
func (c *Call) Done() <-chan struct{} { return c.done }

// Plan gives a call a Done before it is sent, so that others can wait for what a goroutine is going to Send. That
// goroutine calls Finish afterwards.
func (c *Call) Plan() { c.done = make(chan struct{}) }

// Finish closes the Done of a planned call.
func (c *Call) Finish() { close(c.done) }

// Depart notes that the call is being written to a connection, after any wait for one. Before this point, a call that
// nobody wants any more is dropped: then Depart returns an error, and the call must not be written. From here on, a lost
// reply leaves doubt.
func (c *Call) Depart() error {
	if err := c.sending().Err(); err != nil && !c.bulk {
		return err
	}
	if c.departed { // a hook writes the command elsewhere as well, perhaps after the reply
		return nil
	}
	c.departed, c.Sent = true, time.Now()
	if c.First.IsZero() || !c.Doubtful {
		c.First = c.Sent
	}
	c.state.CompareAndSwap(waiting, departed)
	return nil
}

// TakeBack notes that the call was not written after all.
func (c *Call) TakeBack() { c.departed = false }

// Write is Depart for a client that asks for the token when it writes that.
func (c *Call) Write() ([]byte, error) {
	if c.IsLost() { // a hook writes the command once more
		return []byte(c.Token), nil
	}
	return append(c.tokenRoom[:0], c.Token...), c.Depart()
}

// sending returns the ctx of the present sending.
func (c *Call) sending() context.Context {
	if c.limited != nil {
		return *c.limited
	}
	return c.Ctx
}

// Wait waits until the call has finished, or ctx ends. It reports whether the call has finished.
func (c *Call) Wait(ctx context.Context) bool {
	if c.done == nil {
		return true
	}
	if ctx.Done() == nil {
		<-c.done
		return true
	}
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-c.done: // both at once: prefer the answer
		return true
	default:
		return false
	}
}

// Command returns the arguments of the command that sends the call: EVALSHA or, if whole is true, EVAL, then the script, the
// number of keys, the keys, and ARGV, with token in the place of the token. Only ints, int64s and strings are among them.
func (c *Call) Command(whole bool, token any) []any {
	const others = 4 // EVALSHA, the script, the number of keys, and the token
	s, rest := c.Script, c.args()
	how, keys := s.how(whole), len(c.Keys)+len(c.Spare)+len(s.endKeys)
	args := make([]any, 3, others+keys+len(rest)+len(s.endArgs))
	args[0], args[1], args[2] = how[0], how[1], keys
	args = append(append(append(args, c.Keys...), c.Spare...), s.endKeys...)
	if c.Token != "" {
		args = append(args, token)
	}
	return append(append(args, rest...), s.endArgs...)
}

// Strings returns KEYS and ARGV as text.
func (c *Call) Strings() (keys, args []string) {
	rest, end := c.args(), c.Script.endArgs
	n := len(c.Keys) + len(c.Spare) + len(c.Script.endKeys)
	all := make([]string, 0, n+1+len(rest)+len(end)) // both in one piece
	all = appendText(appendText(appendText(all, c.Keys), c.Spare), c.Script.endKeys)
	if c.Token != "" {
		all = append(all, c.Token)
	}
	all = appendText(appendText(all, rest), end)
	return all[:n:n], all[n:]
}

// appendText appends args as Redis gets them.
func appendText(to []string, args []any) []string {
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			to = append(to, arg)
		case int64:
			to = append(to, strconv.FormatInt(arg, 10))
		case int:
			to = append(to, strconv.Itoa(arg))
		default:
			panic(fmt.Sprintf("a %T among the arguments of a script", arg))
		}
	}
	return to
}

// IsCommand reports whether args are those of Command.
func (c *Call) IsCommand(args []any, whole bool, token any) bool {
	how, keys := c.Script.how(whole), len(c.Keys)+len(c.Spare)+len(c.Script.endKeys)
	if len(args) < 3+keys || args[0] != how[0] || args[1] != how[1] || args[2] != keys || !c.HasKeys(args[3:]) {
		return false
	}
	args = args[3+keys:]
	if c.Token != "" {
		if len(args) == 0 || args[0] != token {
			return false
		}
		args = args[1:]
	}
	rest, end := c.args(), c.Script.endArgs
	return len(args) == len(rest)+len(end) && startsWith(args, rest) && startsWith(args[len(rest):], end)
}

// HasKeys reports whether args begin with KEYS.
func (c *Call) HasKeys(args []any) bool {
	for _, keys := range [3][]any{c.Keys, c.Spare, c.Script.endKeys} {
		if !startsWith(args, keys) {
			return false
		}
		args = args[len(keys):]
	}
	return true
}

func startsWith(args, wanted []any) bool {
	if len(args) < len(wanted) {
		return false
	}
	for i, arg := range wanted {
		if args[i] != arg {
			return false
		}
	}
	return true
}
