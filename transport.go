package redislock

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script and the name it goes by: its hash on the server, its operation in errors.
type script struct {
	operation string
	eval      [2]any // EVAL and the source, boxed once instead of for each call
	evalsha   [2]any // EVALSHA and the hash
}

func newScript(operation, source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{
		operation: operation,
		eval:      [2]any{"eval", source},
		evalsha:   [2]any{"evalsha", hex.EncodeToString(sum[:])},
	}
}

// node is one Redis that scripts are sent to: a server, a Cluster, a Ring, or what a type of the caller's own hides.
// It is immutable.
type node struct {
	scripter RedisClient
	unusable error // why nothing can be sent, if so

	// process sends one command of any kind. It is nil for a type of the caller's own, of which EvalSha and Eval are
	// all that may be called, and which does its own resending.
	process func(context.Context, redis.Cmder) error
	resends int // at most so many for one call
	single  *redis.Client
	cluster *redis.ClusterClient
	ring    *redis.Ring

	// subscribe returns a subscription to nothing yet. It is nil where there is none that hears what scripts publish: a
	// Ring runs a script where its keys are, and subscribes where the channel is.
	subscribe func(context.Context) *redis.PubSub
}

func newNode(client RedisClient) *node {
	n := &node{scripter: client}
	none := client == nil
	switch client := client.(type) {
	case *redis.Client:
		if none = client == nil; !none {
			n.process, n.resends, n.single = client.Process, client.Options().MaxRetries, client
			// While it connects, a subscription can neither be interrupted nor closed.
			listener := client
			if own := client.Options().ReadTimeout; own <= 0 || own > longTimeout {
				listener = client.WithTimeout(longTimeout)
			}
			n.subscribe = func(ctx context.Context) *redis.PubSub { return listener.Subscribe(ctx) }
		}
	case *redis.ClusterClient:
		if none = client == nil; !none {
			n.process, n.resends, n.cluster = client.Process, clusterResends(client.Options()), client
			n.subscribe = func(ctx context.Context) *redis.PubSub { return client.Subscribe(ctx) }
		}
	case *redis.Ring:
		if none = client == nil; !none {
			n.process, n.resends, n.ring = client.Process, client.Options().MaxRetries, client
		}
	case redis.Pipeliner:
		n.unusable = invalid("a %T queues scripts instead of running them; pass the client it was made from", client)
	}
	if none {
		n.unusable = invalid("the Redis client is nil")
	}
	return n
}

// clusterResends returns how often go-redis would try again on a Cluster: it counts redirections in place of retries,
// and has the retries of a single node off by default.
func clusterResends(opt *redis.ClusterOptions) int {
	return max(opt.MaxRetries, opt.MaxRedirects)
}

// call is one script on its way to a node, with all its resends.
type call struct {
	script *script
	keys   []string
	boxed  []any  // the keys, and their lines if the script takes them: it does its main work without them, too
	fence  string // a key between the two; "" for none
	token  string // ARGV[1]; "" for a script that takes none
	args   []any  // the rest of ARGV

	// ctx is done when nobody wants the call any more. A call whose ctx is done is not sent again, nor for a first time.
	ctx context.Context
	// giveUp ends the resending; the zero time leaves it to the node's count.
	giveUp time.Time
	// persistent lets resending go on until giveUp, past the node's count. It may be set at any time.
	persistent atomic.Bool
	// dropped says that nobody wants the call any more, like the end of ctx. It may be set at any time.
	dropped atomic.Bool

	// The rest is written by the goroutine that sends the call. Others may read it once done is closed, or where there
	// is no done, once do has returned.
	reply    any
	err      error
	first    time.Time // when it first left; zero while it has not
	sent     time.Time // when it last left
	left     bool      // the present sending has reached a connection
	doubtful bool      // some sending may have been, or may yet be, executed without its reply having come
	done     chan struct{}
}

// leave notes that the call is being written to a connection, after any wait for one. From here on a lost reply leaves
// doubt, and before it a call that nobody wants any more is dropped.
func (c *call) leave() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.dropped.Load() {
		return errDropped
	}
	c.left, c.sent = true, time.Now()
	if c.first.IsZero() {
		c.first = c.sent
	}
	return nil
}

var errDropped = errors.New("redislock: superseded")

// MarshalBinary makes the call an argument of its own command, in the place of the token: go-redis asks for it while it
// writes the command.
func (c *call) MarshalBinary() ([]byte, error) {
	return []byte(c.token), c.leave()
}

// String is the token, for hooks that print commands.
func (c *call) String() string { return c.token }

// do sends the call, and returns once that has ended, or ctx has. It reports whether the call has ended. If not, the
// call goes on in a goroutine that ends with it; do not touch it before its done is closed.
func (n *node) do(ctx context.Context, c *call) bool {
	if ctx.Done() == nil {
		n.send(c)
		return true
	}
	// go-redis does not interrupt a read when ctx ends, so the caller waits beside it.
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		n.send(c)
	}()
	return c.await(ctx)
}

// await waits for the end of a call that do has been given, but not past the end of ctx. It reports whether the call has
// ended.
func (c *call) await(ctx context.Context) bool {
	if c.done == nil {
		return true
	}
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-c.done: // both at once: an answer is worth more than an end
		return true
	default:
		return false
	}
}

// send sends the call until it is answered, until resending is no use, or until nobody wants it any more. This is the
// one place where anything is resent; every script bears it.
func (n *node) send(c *call) {
	for resends := 0; ; resends++ {
		c.reply, c.err = n.once(c)
		if c.err == nil {
			return
		}
		if len(c.boxed) > len(c.keys) && len(c.keys) > 0 && redis.IsTryAgainError(c.err) {
			c.boxed = c.boxed[:len(c.keys)] // the slot moves to another node: a script with keys that do not exist is refused by both
			continue
		}
		answered := isRedisError(c.err)
		c.doubtful = c.doubtful || c.left && !answered
		if n.process == nil || answered && !isPassing(c.err) || errors.Is(c.err, redis.ErrClosed) || c.dropped.Load() {
			return
		}
		if n.cluster != nil && !answered {
			n.cluster.ReloadState(c.ctx) // a master may have moved; go-redis looks only if it resends itself
		}
		wait := resendWait(resends)
		if resends >= n.resends && !c.persistent.Load() || !c.giveUp.IsZero() && time.Now().Add(wait).After(c.giveUp) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// resendWait returns how long to wait before the resend with this number: 8 ms, doubled up to 4 s, less up to a half at
// random. go-redis begins alike.
func resendWait(resends int) time.Duration {
	most := 8 * time.Millisecond << min(resends, 9)
	return most - rand.N(most/2)
}

// once sends the call one time: by its hash, and if the server does not know that, with the whole script.
func (n *node) once(c *call) (any, error) {
	reply, err := n.command(c, c.script.evalsha)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = n.command(c, c.script.eval)
	}
	return reply, err
}

func (n *node) command(c *call, how [2]any) (any, error) {
	c.left = false
	if n.process == nil || c.token == "" { // nothing will tell when it leaves, so take it that it does now
		if err := c.leave(); err != nil {
			return nil, err
		}
	}
	if n.process == nil {
		args := c.args
		if c.token != "" {
			args = append([]any{c.token}, args...)
		}
		var keys []string
		for _, key := range c.appendKeys(nil) {
			keys = append(keys, key.(string))
		}
		if how[0] == c.script.eval[0] {
			return n.scripter.Eval(c.ctx, how[1].(string), keys, args...).Result()
		}
		return n.scripter.EvalSha(c.ctx, how[1].(string), keys, args...).Result()
	}
	cmd := newCommand(c, how)
	_ = n.process(c.ctx, cmd) // sets the error of cmd
	return cmd.Result()
}

const (
	// longTimeout is a ReadTimeout so long that pipelines which hang for it would add up.
	longTimeout = 5 * time.Second

	// strays bounds the calls of one sendTogether that go by themselves at any one time.
	strays = 64
)

// sendTogether sends calls that are all for one server, in one pipeline, and calls landed with the index of each when
// that has ended, from several goroutines maybe. It returns when all have. It waits for a connection for up to patience,
// and then for the replies as long as the client does. Each call has its own reply or error. Nothing is resent but what
// the server does not know the script of, or tells to go elsewhere.
//
// A call for elsewhere goes by itself, since where it goes may hang; and so do all where it is not known which server is
// behind the client.
func (n *node) sendTogether(server *redis.Client, calls []*call, patience time.Duration, landed func(int)) {
	var elsewhere, unknown []int
	if server == nil {
		for i := range calls {
			elsewhere = append(elsewhere, i)
		}
	} else {
		// Such a client has not the caller's hooks, but a pipeline that never ends is worse.
		if own := server.Options().ReadTimeout; own <= 0 || own > longTimeout {
			server = server.WithTimeout(max(2*patience, time.Second))
		}
		n.pipeline(server, calls, patience, func(s *script) [2]any { return s.evalsha })
	}
	var again []*call
	for i, c := range calls {
		switch {
		case server == nil:
		case c.err != nil && redis.HasErrorPrefix(c.err, "NOSCRIPT"):
			unknown = append(unknown, i)
			again = append(again, c)
		case c.err != nil && (redis.HasErrorPrefix(c.err, "MOVED") || redis.HasErrorPrefix(c.err, "ASK")):
			elsewhere = append(elsewhere, i)
		default:
			landed(i)
		}
	}
	var wait sync.WaitGroup
	free := make(chan struct{}, strays)
	for _, i := range elsewhere {
		free <- struct{}{}
		wait.Go(func() {
			defer func() { <-free }()
			calls[i].reply, calls[i].err = n.once(calls[i])
			landed(i)
		})
	}
	if len(again) > 0 {
		n.pipeline(server, again, patience, func(s *script) [2]any { return s.eval })
		for _, i := range unknown {
			landed(i)
		}
	}
	wait.Wait()
}

// pipeline sends calls in one pipeline, each once, if there is a connection within patience.
func (n *node) pipeline(server *redis.Client, calls []*call, patience time.Duration, how func(*script) [2]any) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pipe := server.Pipeline()
	commands := make([]command, len(calls))
	for i, c := range calls {
		commands[i] = newCommand(c, how(c.script))
		_ = pipe.Process(ctx, commands[i]) // only queues
	}
	_, err := pipe.Exec(ctx)
	for i, c := range calls {
		c.reply, c.err = commands[i].Result()
		if c.err == nil && c.reply == nil {
			c.err = err // it was not sent at all
		}
	}
	if err != nil && !isRedisError(err) && n.cluster != nil {
		n.cluster.ReloadState(ctx) // a master may have moved
	}
}

// command is a command that go-redis itself never resends.
type command struct{ *redis.Cmd }

// appendKeys appends all that stands in KEYS.
func (c *call) appendKeys(args []any) []any {
	args = append(args, c.boxed[:len(c.keys)]...)
	if c.fence != "" {
		args = append(args, c.fence)
	}
	return append(args, c.boxed[len(c.keys):]...)
}

func newCommand(c *call, how [2]any) command {
	const others = 5 // how, the number of keys, the fence key and the token
	args := make([]any, 3, others+len(c.boxed)+len(c.args))
	args = c.appendKeys(args)
	args[0], args[1], args[2] = how[0], how[1], len(args)-3
	if c.token != "" {
		args = append(args, c)
	}
	cmd := command{redis.NewCmd(c.ctx, append(args, c.args...)...)}
	cmd.SetFirstKeyPos(3)
	return cmd
}

// NoRetry is honoured by go-redis from v9.19 on.
func (command) NoRetry() bool { return true }

// isRedisError reports whether err is an answer of the server, rather than a failure to get one.
func isRedisError(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// isPassing reports whether err is a server's way to say "not now": it did nothing, and may soon.
func isPassing(err error) bool {
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) ||
		redis.IsClusterDownError(err) || redis.IsTryAgainError(err) || redis.IsNoReplicasError(err) ||
		redis.IsMaxClientsError(err)
}
