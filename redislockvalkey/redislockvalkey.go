// Package redislockvalkey lets redislock use a client of valkey-go:
//
//	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"localhost:6379"}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	locks := redislock.New(redislockvalkey.Adapt(client))
//
// It works with one server, with Sentinel and with a Cluster.
package redislockvalkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/valkey-io/valkey-go"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/adapter"
)

// Adapt returns a RedisClient for [redislock.New] and [redislock.NewQuorum]. Those of one client are equal. If client is
// nil, every call returns an error.
func Adapt(client valkey.Client) redislock.RedisClient { return redislock.Adapt(connOf(client)) }

// connOf returns the adapter; nil if client is.
func connOf(client valkey.Client) adapter.Conn {
	switch {
	case client == nil:
		return nil
	case client.Mode() == valkey.ClientModeCluster:
		return cluster{conn{client}}
	}
	return conn{client}
}

// conn is a client of one server, or behind Sentinel.
type conn struct{ client valkey.Client }

func (c conn) About() adapter.About {
	about := adapter.About{Reach: adapter.OneServer}
	for address := range c.client.Nodes() {
		about.Address = address
	}
	return about
}

func (c conn) Run(ctx context.Context, scripts []*adapter.Script) {
	if len(scripts) == 1 {
		s := scripts[0]
		if s.Err = s.Sent(); s.Err == nil {
			s.Reply, s.Err = read(c.client.Do(ctx, c.command(s)))
		}
		return
	}
	commands := make([]valkey.Completed, len(scripts))
	for i, s := range scripts {
		commands[i] = c.command(s)
		_ = s.Sent()
	}
	for i, r := range c.client.DoMulti(ctx, commands...) {
		scripts[i].Reply, scripts[i].Err = read(r)
	}
}

// command returns the command that sends a script.
func (c conn) command(s *adapter.Script) valkey.Completed {
	how, script := "EVALSHA", s.SHA1
	if s.Whole {
		how, script = "EVAL", s.Source
	}
	return c.client.B().Arbitrary(how, script, strconv.Itoa(len(s.Keys))).Keys(s.Keys...).Args(s.Args...).Build()
}

// read returns the reply of Redis as the library wants it.
func read(r valkey.ValkeyResult) (any, error) {
	m, err := r.ToMessage()
	switch {
	case valkey.IsValkeyNil(err):
		return nil, nil
	case err != nil:
		return nil, failure(err)
	case m.IsInt64():
		return m.AsInt64()
	}
	return m.ToAny()
}

// failure returns an error as the library wants it.
func failure(err error) error {
	if answer, is := valkey.IsValkeyErr(err); is {
		return adapter.ReplyError(answer.Error())
	}
	if errors.Is(err, valkey.ErrClosing) {
		return fmt.Errorf("%w: %w", adapter.ErrClosed, err)
	}
	if failed, is := errors.AsType[*net.OpError](err); is && failed.Op == "dial" {
		return fmt.Errorf("%w: %w", adapter.ErrNotSent, err)
	}
	return err
}

func (c conn) StandsAlone(ctx context.Context) (bool, error) {
	reply, err := c.client.Do(ctx, c.client.B().Arbitrary("HELLO").Build()).ToMap()
	if err != nil {
		return false, failure(err)
	}
	mode := reply["mode"]
	text, err := mode.ToString()
	return text == "standalone", failure(err)
}

// Listen has a connection of its own: Receive of a client would connect again without telling that messages were lost.
func (c conn) Listen(ctx context.Context, channel string, open func(), message func(payload string)) error {
	dedicated, release := c.client.Dedicate()
	defer release()
	ended := dedicated.SetPubSubHooks(valkey.PubSubHooks{
		OnSubscription: func(s valkey.PubSubSubscription) {
			if s.Kind == "subscribe" {
				open()
			}
		},
		OnMessage: func(m valkey.PubSubMessage) { message(m.Message) },
	})
	if err := dedicated.Do(ctx, dedicated.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		return failure(err)
	}
	select {
	case err := <-ended:
		return failure(err)
	case <-ctx.Done():
		dedicated.Close()
		return cmp.Or(failure(<-ended), ctx.Err()) // no message comes after that
	}
}

// cluster is a client of a Cluster.
type cluster struct{ conn }

func (c cluster) About() adapter.About {
	about := c.conn.About()
	about.Reach = adapter.Slots
	return about
}

// Slots asks by CLUSTER SLOTS, which Redis 6 knows as well.
func (c cluster) Slots(ctx context.Context) ([]adapter.SlotRange, error) {
	found, err := c.client.Do(ctx, c.client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, failure(err)
	}
	var all []adapter.SlotRange
	for _, one := range found {
		parts, err := one.ToArray() // first, last, {address, port, …} of the master, of replicas
		if err != nil || len(parts) < 3 {
			return nil, fmt.Errorf("unexpected reply to CLUSTER SLOTS: %v", one.String())
		}
		first, err1 := parts[0].AsInt64()
		last, err2 := parts[1].AsInt64()
		master, err3 := parts[2].ToArray()
		if err := errors.Join(err1, err2, err3); err != nil || len(master) < 2 {
			return nil, fmt.Errorf("unexpected reply to CLUSTER SLOTS: %v", one.String())
		}
		host, _ := master[0].ToString() // nil if the node does not know its own address
		port, _ := master[1].AsInt64()
		all = append(all, adapter.SlotRange{
			First: int(first), Last: int(last), Address: net.JoinHostPort(host, strconv.FormatInt(port, 10)),
		})
	}
	return all, nil
}
