package goredis

import (
	"context"
	"errors"
	"runtime"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/transport"
)

// command is a command that go-redis itself never resends.
type command struct{ *redis.Cmd }

// NoRetry makes go-redis v9.19 and later not resend the command.
func (command) NoRetry() bool { return true }

func newCommand(ctx context.Context, args []any) command {
	cmd := command{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}

// What a call carries that goes by itself: its command, which names the script by its hash, or holds the source.
type (
	byHash   redis.Cmd
	bySource redis.Cmd
)

// token is a call that stands for its token among the arguments of its own command.
type token transport.Call

func tokenOf(c *transport.Call) any { return (*token)(c) }

// MarshalBinary returns the token. go-redis calls it while it writes the command: this is the only place where it shows that
// moment.
func (t *token) MarshalBinary() ([]byte, error) {
	c := (*transport.Call)(t)
	if !c.IsLost() { // compare now, because a hook may restore later what it has rewritten
		switch cmd := c.Carrier.(type) {
		case *byHash:
			compare(c, (*redis.Cmd)(cmd), false)
		case *bySource:
			compare(c, (*redis.Cmd)(cmd), true)
		}
	}
	return c.Write()
}

// compare notes whether a hook has rewritten the command of a call.
func compare(c *transport.Call, cmd *redis.Cmd, whole bool) {
	c.Rewritten = c.Rewritten || !c.IsCommand(cmd.Args(), whole, tokenOf(c))
}

// String returns the token, for hooks that print commands.
func (t *token) String() string { return t.Token }

// Send sends a call by itself through the client.
func (c *client) Send(ctx context.Context, call *transport.Call, whole bool) (any, error) {
	if c.process == nil {
		return c.eval(ctx, call, whole)
	}
	if call.Token == "" { // nothing will ask it while it is written, so count it as written now
		if err := call.Depart(); err != nil {
			return nil, err
		}
	}
	cmd := newCommand(ctx, call.Command(whole, tokenOf(call)))
	if call.Carrier = (*byHash)(cmd.Cmd); whole {
		call.Carrier = (*bySource)(cmd.Cmd)
	}
	_ = c.process(ctx, cmd) // sets the error of cmd
	reply, err := cmd.Result()
	call.Carrier = nil
	compare(call, cmd.Cmd, whole)
	return reply, named(err)
}

// eval does the work of Send for a client on which only EvalSha and Eval may be called.
func (c *client) eval(ctx context.Context, call *transport.Call, whole bool) (reply any, err error) {
	if err := call.Depart(); err != nil {
		return nil, err
	}
	args := call.Command(whole, call.Token)
	script, keys := args[1].(string), make([]string, args[2].(int))
	for i := range keys {
		keys[i] = args[3+i].(string)
	}
	if c.hollow != "" {
		defer func() {
			switch value := recover().(type) {
			case nil:
			case runtime.Error: // the client has used the nil
				reply, err = nil, &transport.NilError{What: c.hollow}
			default:
				panic(value)
			}
		}()
	}
	send := c.scripter.EvalSha
	if whole {
		send = c.scripter.Eval
	}
	cmd := send(ctx, script, keys, args[3+len(keys):]...)
	// The client may have made this command from other keys, or the command may say nothing about keys.
	sent := cmd.Args()
	call.Rewritten = len(sent) < 3 || !call.HasKeys(sent[3:])
	reply, err = cmd.Result()
	return reply, named(err)
}

// named returns an error in such a form that transport knows it.
func named(err error) error {
	if err != nil && errors.Is(err, redis.ErrClosed) {
		return &transport.ClosedError{Err: err}
	}
	return err
}
