package transport

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// abilities are what a Redis client can do. abilitiesOf looks once; nothing else looks at the client or its type.
type abilities struct {
	scripter redis.Scripter

	// process sends one command of any kind. It is nil if only EvalSha and Eval may be called; then the client does its own
	// resending.
	process func(context.Context, redis.Cmder) error
	resends int          // the most for one call; 0 without process
	single  serverClient // sends to the only server; nil if there may be others, and without process
	inner   serverClient // what the client embeds, if that is a go-redis client of one server; nil otherwise

	layout  layout
	address string // of the server, or of one node; "" if the client does not say

	// node returns the client of the server that has a key. It is nil unless the keys are in slots or on shards. On a
	// Cluster it may ask the servers.
	node func(key string) (serverClient, error)
	// reload makes a Cluster look again which node has which slots. It is nil on anything else, and without process.
	reload func(context.Context)

	// subscribe returns a subscription without channels. It is nil if no subscription would receive what scripts publish:
	// a Ring runs a script on the shard of its keys, and subscribes on the shard of the channel.
	subscribe func(context.Context) subscription

	hollow string // names the nil that the client embeds; "" if it embeds none
}

// layout says what one script can reach.
type layout int

const (
	unknownLayout layout = iota // the client does not say; the library treats it as one server, but does not rely on that
	oneServer                   // all keys, and the subscriptions are there as well
	slots                       // the keys of one slot of a Cluster; with others, it fails
	shards                      // the keys of one shard of a Ring; with others, it goes to the shard of the first
)

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

// abilitiesOf returns what a client can do, or an error if it cannot run scripts.
func abilitiesOf(client redis.Scripter) (abilities, error) {
	a := abilities{scripter: client}
	if client == nil || isNil(reflect.ValueOf(client)) {
		return a, errors.New("the Redis client is nil")
	}
	// EvalSha and Eval of these types call Process with a command, so the library calls Process itself, or that of a
	// pipeline. For any other type, the library cannot know that: a method that the type declares looks like a method of an
	// embedded client. So each call goes through EvalSha and Eval of that type.
	switch client := client.(type) {
	case *redis.Client:
		a.process, a.resends, a.single = client.Process, client.Options().MaxRetries, ofOneServer{client}
	case *redis.ClusterClient:
		// On a Cluster, go-redis counts redirections instead of retries, and does not retry on a single node by default.
		a.process, a.resends = client.Process, max(client.Options().MaxRetries, client.Options().MaxRedirects)
		a.reload = client.ReloadState
	case *redis.Ring:
		a.process, a.resends = client.Process, client.Options().MaxRetries
	case *redis.Conn:
		a.process, a.resends = client.Process, connResends
		return a, nil
	}
	if a.process != nil {
		a.locate(client)
	} else if err := a.lookInside(reflect.ValueOf(client)); err != nil {
		return a, err
	}
	if listener, can := client.(withSubscriptions); can && a.hollow == "" && a.layout != shards {
		a.subscribe = subscribing(listener)
	}
	return a, nil
}

// connResends is the default of MaxRetries. A Conn does not say its own.
const connResends = 3

// locate notes where a client sends scripts, and reports whether it says so.
func (a *abilities) locate(client any) bool {
	switch client := client.(type) {
	case withMasters:
		a.layout = slots
		a.node = nodeBy(func(key string) (*redis.Client, error) { return client.MasterForKey(context.Background(), key) })
		if named, can := client.(withClusterOptions); can && len(named.Options().Addrs) > 0 {
			a.address = named.Options().Addrs[0]
		}
	case withShards:
		a.layout, a.node = shards, nodeBy(client.GetShardClientForKey)
	case withOptions:
		a.layout, a.address = oneServer, client.Options().Addr
	default:
		return false
	}
	return true
}

// lookInside does what locate does for a client whose type is not one of go-redis. If the client does not say where it
// sends scripts, the value that it embeds may say so: an interface like redis.UniversalClient hides those methods. The
// library uses the embedded value for nothing else. lookInside returns an error if the client queues scripts.
func (a *abilities) lookInside(client reflect.Value) error {
	var all []any // the client and what it embeds, outermost first, as far as reflection may use it
	for v := client; v.IsValid(); v = embedded(v) {
		if isNil(v) {
			a.hollow = fmt.Sprintf("the %v that a %T embeds", v.Type(), a.scripter)
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
		if inner, is := each.(*redis.Client); is {
			a.inner = ofOneServer{inner}
		}
		if _, queues := each.(redis.Pipeliner); queues {
			return fmt.Errorf("a %T queues scripts instead of running them; pass the client it was made from", a.scripter)
		}
		located = located || a.locate(each)
	}
	return nil
}

var (
	scripterType   = reflect.TypeFor[redis.Scripter]()
	goRedisPackage = reflect.TypeFor[redis.Client]().PkgPath()
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

// NilError is the error of a call through a client of the caller's own type that embeds a nil and has used it. The error
// counts as an answer: nothing was sent, and no later call can succeed. Only a call shows whether the client uses the nil,
// because its type may declare all methods that the library calls.
type NilError struct{ what string }

func (e *NilError) Error() string { return e.what + " is nil" }

// RedisError makes the error look like an answer to go-redis.
func (e *NilError) RedisError() {}

// subscribing returns how to subscribe with a client.
func subscribing(client withSubscriptions) func(context.Context) subscription {
	// A subscription that is connecting can neither be interrupted nor closed, so it needs a timeout. The client that
	// WithTimeout returns lacks the caller's hooks, but a subscription that never ends would be worse.
	known, can := client.(withOptions)
	if limiting, has := client.(withTimeout); can && has {
		if own := known.Options().ReadTimeout; own <= 0 || own > connectTimeout {
			client = limiting.WithTimeout(connectTimeout)
		}
	}
	return func(ctx context.Context) subscription { return client.Subscribe(ctx) }
}
