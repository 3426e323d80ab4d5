// Package redislockrueidis lets redislock use a client of rueidis:
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	locks := redislock.New(redislockrueidis.Adapt(client))
//
// It works with one server, with Sentinel and with a Cluster. Leave ConnLifetime out of rueidis.ClientOption: with it, the
// client sends scripts a second time behind the library's back, and nobody knows what a lock has then.
package redislockrueidis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
)

// Adapt returns a RedisClient for [redislock.New] and [redislock.NewQuorum]. Those of one client are equal. If client is
// nil, every call returns an error.
func Adapt(client rueidis.Client) redislock.RedisClient { return redislock.Adapt(connOf(client)) }

// connOf returns the adapter; nil if client is.
func connOf(client rueidis.Client) adapter.Conn {
	switch {
	case client == nil:
		return nil
	case client.Mode() == rueidis.ClientModeCluster:
		return cluster{conn{client, adapter.Slots}}
	}
	return conn{client, adapter.OneServer}
}

// conn is a client of one server, or behind Sentinel.
type conn struct {
	client rueidis.Client
	reach  adapter.Reach
}

func (c conn) About() adapter.About {
	about := adapter.About{Reach: c.reach}
	for address := range c.client.Nodes() {
		about.Address = address
	}
	return about
}

func (c conn) Run(ctx context.Context, scripts []*adapter.Script) {
	defer c.explain(ctx, scripts)
	if len(scripts) == 1 {
		s := scripts[0]
		if s.Err = s.Sent(); s.Err == nil {
			s.Reply, s.Err = read(c.client.Do(ctx, c.command(s)))
		}
		return
	}
	commands := make([]rueidis.Completed, len(scripts))
	for i, s := range scripts {
		commands[i] = c.command(s)
		_ = s.Sent()
	}
	for i, r := range c.client.DoMulti(ctx, commands...) {
		scripts[i].Reply, scripts[i].Err = read(r)
	}
}

// explain finds out what rueidis.ErrClosing means: calls get it if their client was closed, but also if the client has
// replaced their connection, for example after a failover.
func (c conn) explain(ctx context.Context, scripts []*adapter.Script) {
	closing := func(s *adapter.Script) bool { return errors.Is(s.Err, rueidis.ErrClosing) }
	if !slices.ContainsFunc(scripts, closing) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if !errors.Is(c.client.Do(ctx, c.client.B().Ping().Build()).Error(), rueidis.ErrClosing) {
		return
	}
	for _, s := range scripts {
		if closing(s) {
			s.Err = fmt.Errorf("%w: %w", adapter.ErrClosed, s.Err)
		}
	}
}

// command returns the command that sends a script.
func (c conn) command(s *adapter.Script) rueidis.Completed {
	how, script := "EVALSHA", s.SHA1
	if s.Whole {
		how, script = "EVAL", s.Source
	}
	return c.client.B().Arbitrary(how, script, strconv.Itoa(len(s.Keys))).Keys(s.Keys...).Args(s.Args...).Build()
}

// read returns the reply of Redis as the library wants it.
func read(r rueidis.RedisResult) (any, error) {
	reply, err := r.ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return reply, failure(err)
}

// failure returns an error as the library wants it; nil for nil.
func failure(err error) error {
	if answer, is := rueidis.IsRedisErr(err); is {
		text := answer.Error()
		if code, _, _ := strings.Cut(text, " "); code != strings.ToUpper(code) {
			text = "ERR " + text // which rueidis has taken away
		}
		return adapter.ReplyError(text)
	}
	if failed, is := errors.AsType[*net.OpError](err); is && failed.Op == "dial" {
		return fmt.Errorf("%w: %w", adapter.ErrNotSent, err)
	}
	return err
}

func (c conn) StandsAlone(ctx context.Context) (bool, error) {
	reply, err := c.client.Do(ctx, c.client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return false, failure(err)
	}
	mode := reply["mode"]
	text, err := mode.ToString()
	return text == "standalone", failure(err)
}

// subscribeWait is how long a subscription waits to be confirmed.
const subscribeWait = 5 * time.Second

// Listen has a connection of its own: Receive of a client would connect again without telling that messages were lost.
func (c conn) Listen(ctx context.Context, channel string, open func(), message func(payload string)) error {
	dedicated, release := c.client.Dedicate()
	defer release()
	ended := dedicated.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" {
				open()
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) { message(m.Message) },
	})
	limited, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	if err := dedicated.Do(limited, dedicated.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		dedicated.Close()
		return failure(err)
	}
	select {
	case err := <-ended:
		return failure(err)
	case <-ctx.Done():
		dedicated.Close()
		return cmp.Or(failure(<-ended), ctx.Err())
	}
}

// cluster is a client of a Cluster.
type cluster struct{ conn }

// Slots asks by CLUSTER SLOTS, which Redis 6 knows as well.
func (c cluster) Slots(ctx context.Context) ([]adapter.SlotRange, error) {
	reply, err := read(c.client.Do(ctx, c.client.B().ClusterSlots().Build()))
	if err != nil {
		return nil, err
	}
	var all []adapter.SlotRange
	found, _ := reply.([]any)
	for _, one := range found {
		parts, _ := one.([]any) // first, last, {host, port, id, …} of the master, of replicas
		if len(parts) < 3 {
			return nil, fmt.Errorf("unexpected reply to CLUSTER SLOTS: %v", one)
		}
		first, _ := parts[0].(int64)
		last, _ := parts[1].(int64)
		master, _ := parts[2].([]any)
		if len(master) < 3 {
			return nil, fmt.Errorf("unexpected reply to CLUSTER SLOTS: %v", one)
		}
		address := fmt.Sprintf("%v:%v", master[0], master[1])
		if host, _ := master[0].(string); host == "" || host == "?" { // the node does not know its own address
			address = fmt.Sprint(master[2])
		}
		all = append(all, adapter.SlotRange{First: int(first), Last: int(last), Address: address})
	}
	return all, nil
}
