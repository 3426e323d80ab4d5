package goredis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/transport"
)

// client is a client of go-redis, or of a type that runs scripts as one does. New looks once what it can do; nothing else
// looks at the client or its type.
type client struct {
	about    transport.About
	scripter redis.Scripter

	// process sends one command of any kind. It is nil if only EvalSha and Eval may be called; then the client does its own
	// resending.
	process func(context.Context, redis.Cmder) error

	// node returns the client of the server that has a key; nil if that is not known. On a Cluster it may ask the servers.
	node func(key string) (*redis.Client, error)
	// reload makes a Cluster look again which node has which slots. It is nil on anything else, and without process.
	reload func(context.Context)

	// subscribe returns a subscription without channels. It is nil if no subscription would receive what scripts publish:
	// a Ring runs a script on the shard of its keys, and subscribes on the shard of the channel.
	subscribe func(context.Context) *redis.PubSub

	hollow string // names the nil that the client embeds; "" if it embeds none
}

// What a client may be able to do, beside running scripts. One with options is a server, one with masters a Cluster, and
// one with shards a Ring.
type (
	withSubscriptions interface {
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	}
	withOptions interface{ Options() *redis.Options }
	withTimeout interface {
		WithTimeout(timeout time.Duration) *redis.Client
	}
	withMasters interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}
	withClusterOptions interface{ Options() *redis.ClusterOptions }
	withShards         interface {
		GetShardClientForKey(key string) (*redis.Client, error)
	}
)

// New returns the Conn of a client, or an error if the client cannot run scripts.
func New(scripter redis.Scripter) (transport.Conn, error) {
	c := &client{scripter: scripter}
	if scripter == nil || isNil(reflect.ValueOf(scripter)) {
		return nil, errors.New("the Redis client is nil")
	}
	// EvalSha and Eval of these types call Process with a command, so the library calls Process itself, or that of a
	// pipeline. For any other type, the library cannot know that: a method that the type declares looks like a method of an
	// embedded client. So each call goes through EvalSha and Eval of that type.
	a := &c.about
	switch known := scripter.(type) {
	case *redis.Client:
		c.process, a.Resends = known.Process, known.Options().MaxRetries
		c.node = func(string) (*redis.Client, error) { return known, nil }
	case *redis.ClusterClient:
		// On a Cluster, go-redis counts redirections instead of retries, and does not retry on a single node by default.
		c.process, a.Resends = known.Process, max(known.Options().MaxRetries, known.Options().MaxRedirects)
		c.reload = known.ReloadState
	case *redis.Ring:
		c.process, a.Resends = known.Process, known.Options().MaxRetries
	case *redis.Conn:
		c.process, a.Resends = known.Process, connResends
		a.Name = fmt.Sprintf("%T", scripter)
		return c, nil
	}
	if a.Shares, a.Opaque = c.process != nil, c.process == nil; a.Shares {
		c.locate(scripter)
	} else if err := c.lookInside(reflect.ValueOf(scripter)); err != nil {
		return nil, err
	}
	if listener, can := scripter.(withSubscriptions); can && c.hollow == "" && a.Reach != transport.Shards {
		c.subscribe, a.Listens = subscribing(listener), true
	}
	if a.Name == "" {
		a.Name = fmt.Sprintf("%T", scripter)
	}
	return c, nil
}

// connResends is the default of MaxRetries. A Conn does not say its own.
const connResends = 3

// locate notes where a client sends scripts, and reports whether it says so.
func (c *client) locate(client any) bool {
	a := &c.about
	switch client := client.(type) {
	case withMasters:
		a.Reach = transport.Slots
		c.node = func(key string) (*redis.Client, error) { return client.MasterForKey(context.Background(), key) }
		if named, can := client.(withClusterOptions); can && len(named.Options().Addrs) > 0 {
			a.Name = named.Options().Addrs[0]
		}
	case withShards:
		a.Reach, c.node = transport.Shards, client.GetShardClientForKey
	case withOptions:
		a.Reach, a.Name = transport.OneServer, client.Options().Addr
	default:
		return false
	}
	return true
}

// lookInside does what locate does for a client whose type is not one of go-redis. If the client does not say where it
// sends scripts, the value that it embeds may say so: an interface like redis.UniversalClient hides those methods. The
// library uses the embedded value for nothing else. lookInside returns an error if the client queues scripts.
func (c *client) lookInside(scripter reflect.Value) error {
	var all []any // the client and what it embeds, outermost first, as far as reflection may use it
	for v := scripter; v.IsValid(); v = embedded(v) {
		if isNil(v) {
			c.hollow = fmt.Sprintf("the %v that a %T embeds", v.Type(), c.scripter)
			return nil
		}
		if v.Kind() == reflect.Struct && v.CanAddr() {
			v = v.Addr() // has more methods
		}
		if v.CanInterface() {
			all = append(all, v.Interface())
		}
	}
	located := false
	for _, each := range all {
		if inner, is := each.(*redis.Client); is && c.node == nil {
			c.node = func(string) (*redis.Client, error) { return inner, nil }
		}
		if _, queues := each.(redis.Pipeliner); queues {
			return fmt.Errorf("a %T queues scripts instead of running them; pass the client it was made from", c.scripter)
		}
		located = located || c.locate(each)
	}
	return nil
}

var (
	scripterType   = reflect.TypeFor[redis.Scripter]()
	goRedisPackage = scripterType.PkgPath()
)

// embedded returns the only field that a struct, or a pointer to one, embeds to run scripts, or no Value without one. It
// does not look into the types of go-redis.
func embedded(v reflect.Value) (found reflect.Value) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || v.Type().PkgPath() == goRedisPackage {
		return reflect.Value{}
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.Anonymous || !field.Type.Implements(scripterType) && !reflect.PointerTo(field.Type).Implements(scripterType) {
			continue
		}
		if found.IsValid() {
			return reflect.Value{} // Go promotes the methods of neither
		}
		found = v.Field(i)
	}
	return found
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil()
	case reflect.Interface:
		return v.IsNil() || isNil(v.Elem())
	}
	return false
}

// subscribing returns how to subscribe with a client.
func subscribing(client withSubscriptions) func(context.Context) *redis.PubSub {
	// A subscription that is connecting can neither be interrupted nor closed, so it needs a timeout. The client that
	// WithTimeout returns lacks the caller's hooks, but a subscription that never ends would be worse.
	known, can := client.(withOptions)
	if limiting, has := client.(withTimeout); can && has {
		if own := known.Options().ReadTimeout; own <= 0 || own > transport.ConnectTimeout {
			client = limiting.WithTimeout(transport.ConnectTimeout)
		}
	}
	return func(ctx context.Context) *redis.PubSub { return client.Subscribe(ctx) }
}

func (c *client) About() transport.About { return c.about }

func (c *client) Node(key string) (transport.Node, error) {
	if c.node == nil {
		return nil, nil
	}
	found, err := c.node(key)
	if err != nil {
		return nil, named(err)
	}
	return node{found}, nil
}

func (c *client) Reload(ctx context.Context) {
	if c.reload != nil {
		c.reload(ctx)
	}
}
