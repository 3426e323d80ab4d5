package transport_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/goredis"
	"github.com/redislock/redislock/internal/transport"
)

// Types of a user's own. A type that embeds a client of go-redis has 600 to 800 methods, and takes the compiler one to three
// seconds. So only two types do that. The others embed the methods that the library may use.
type (
	embedding          struct{ *redis.Client }
	embeddingUniversal struct{ redis.UniversalClient }
	embeddingScripter  struct{ redis.Scripter }
	embeddingCluster   struct{ ClusterMethods }
	embeddingRing      struct{ RingMethods }
	embeddingByValue   struct{ embeddingCluster }
	embeddingTwice     struct {
		*embeddingCluster

		name string
	}
)

// The methods that the library may use, of a redis.UniversalClient and of two clients of go-redis. Like redis.UniversalClient,
// they are exported: reflection does not use an embedded value of an unexported type.
type (
	UniversalMethods interface {
		redis.Scripter
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	}
	ClusterMethods interface {
		UniversalMethods
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
		Options() *redis.ClusterOptions
	}
	RingMethods interface {
		UniversalMethods
		GetShardClientForKey(key string) (*redis.Client, error)
	}
)

// own is a client that embeds nothing.
type own struct{}

func (own) Eval(context.Context, string, []string, ...any) *redis.Cmd {
	return redis.NewCmdResult(int64(1), nil)
}

func (own) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	return redis.NewCmdResult(int64(1), nil)
}
func (own) EvalRO(context.Context, string, []string, ...any) *redis.Cmd    { return nil }
func (own) EvalShaRO(context.Context, string, []string, ...any) *redis.Cmd { return nil }
func (own) ScriptExists(context.Context, ...string) *redis.BoolSliceCmd    { return nil }
func (own) ScriptLoad(context.Context, string) *redis.StringCmd            { return nil }

// telling is one that tells where it sends scripts.
type telling struct {
	own

	cluster *redis.ClusterClient
}

func (t telling) MasterForKey(ctx context.Context, key string) (*redis.Client, error) {
	return t.cluster.MasterForKey(ctx, key)
}

func (t telling) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return t.cluster.Subscribe(ctx, channels...)
}

// stub embeds a nil that it does not use.
type stub struct {
	redis.Scripter

	answers own
}

func (s stub) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return s.answers.Eval(ctx, script, keys, args...)
}

func (s stub) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return s.answers.EvalSha(ctx, sha, keys, args...)
}

// clients are clients of each kind. They do no I/O.
type clients struct {
	single  *redis.Client
	cluster *redis.ClusterClient
	ring    *redis.Ring
}

func newClients(t *testing.T) clients {
	c := clients{
		single:  redis.NewClient(&redis.Options{Addr: "single:1"}),
		cluster: redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"cluster:1", "cluster:2"}}),
		ring: redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"1": "shard:1", "2": "shard:2"}, HeartbeatFrequency: time.Hour,
		}),
	}
	t.Cleanup(func() {
		_ = c.single.Close()
		_ = c.cluster.Close()
		_ = c.ring.Close()
	})
	return c
}

func TestWhatAClientTellsOfItself(t *testing.T) {
	c := newClients(t)
	type abilities struct {
		listens, isSingle, isCluster, isRing bool
		address                              string
	}
	single := abilities{listens: true, isSingle: true, address: "single:1"}
	cluster := abilities{listens: true, isCluster: true, address: "cluster:1"}
	ring := func(name string) abilities { return abilities{isRing: true, address: name} }
	const here = "transport_test."
	for _, tt := range []struct {
		client redis.Scripter
		want   abilities
	}{
		{c.single, single},
		{embedding{c.single}, single},
		{&embedding{c.single}, single},
		{embeddingUniversal{c.single}, single},
		{&embeddingUniversal{embedding{c.single}}, single},
		{embeddingUniversal{redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"single:1"}})}, single},
		{embeddingScripter{c.single}, abilities{isSingle: true, address: "single:1"}},
		{c.single.Conn(), abilities{address: "*redis.Conn"}},
		{&embeddingScripter{c.single.Conn()}, abilities{address: "*" + here + "embeddingScripter"}},

		{c.cluster, cluster},
		{embeddingCluster{c.cluster}, cluster},
		{&embeddingCluster{c.cluster}, cluster},
		{&embeddingTwice{&embeddingCluster{c.cluster}, "a"}, cluster},
		{embeddingByValue{embeddingCluster{c.cluster}}, cluster},
		{&embeddingByValue{embeddingCluster{c.cluster}}, cluster},
		{embeddingUniversal{c.cluster}, cluster},
		{&embeddingUniversal{&embeddingUniversal{c.cluster}}, cluster},
		{embeddingScripter{c.cluster}, abilities{isCluster: true, address: "cluster:1"}},
		{telling{cluster: c.cluster}, abilities{listens: true, isCluster: true, address: here + "telling"}},

		{c.ring, ring("*redis.Ring")},
		{embeddingRing{c.ring}, ring(here + "embeddingRing")},
		{&embeddingUniversal{c.ring}, ring("*" + here + "embeddingUniversal")},
		{embeddingScripter{embeddingRing{c.ring}}, ring(here + "embeddingScripter")},

		{own{}, abilities{address: here + "own"}},
		{&own{}, abilities{address: "*" + here + "own"}},
		{embeddingScripter{own{}}, abilities{address: here + "embeddingScripter"}},
		{stub{}, abilities{address: here + "stub"}},
	} {
		conn, err := goredis.New(tt.client)
		if err != nil {
			t.Errorf("%T: %v", tt.client, err)
			continue
		}
		r := transport.New(conn)
		if got := (abilities{r.CanListen(), r.IsSingle(), r.IsCluster(), r.IsRing(), r.Name}); got != tt.want {
			t.Errorf("%T:\n got %+v\nwant %+v", tt.client, got, tt.want)
		}
	}
}

func TestWhoCannotRunScripts(t *testing.T) {
	c := newClients(t)
	for _, tt := range []struct {
		client redis.Scripter
		want   string
	}{
		{nil, "the Redis client is nil"},
		{(*redis.Client)(nil), "the Redis client is nil"},
		{(*redis.ClusterClient)(nil), "the Redis client is nil"},
		{(*redis.Ring)(nil), "the Redis client is nil"},
		{(*redis.Conn)(nil), "the Redis client is nil"},
		{(*embedding)(nil), "the Redis client is nil"},
		{c.single.Pipeline(), "a *redis.Pipeline queues scripts"},
		{c.ring.TxPipeline(), "a *redis.Pipeline queues scripts"},
		{embeddingScripter{embeddingScripter{c.single.Pipeline()}}, "a transport_test.embeddingScripter queues scripts"},
		{&embeddingScripter{c.single.Pipeline()}, "a *transport_test.embeddingScripter queues scripts"},
	} {
		if _, err := goredis.New(tt.client); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%T: %v, want %s", tt.client, err, tt.want)
		}
	}
}

// Only a call shows whether a client uses the nil that it embeds.
func TestClientsThatEmbedANil(t *testing.T) {
	for _, tt := range []struct {
		client redis.Scripter
		want   string // "" for no error
	}{
		{embedding{}, "the *redis.Client that a transport_test.embedding embeds is nil"},
		{&embedding{}, "the *redis.Client that a *transport_test.embedding embeds is nil"},
		{&embeddingCluster{}, "the transport_test.ClusterMethods that a *transport_test.embeddingCluster embeds is nil"},
		{embeddingUniversal{}, "the redis.UniversalClient that a transport_test.embeddingUniversal embeds is nil"},
		{embeddingScripter{(*redis.Ring)(nil)}, "the redis.Scripter that a transport_test.embeddingScripter embeds is nil"},
		{&embeddingTwice{}, "the *transport_test.embeddingCluster that a *transport_test.embeddingTwice embeds is nil"},
		{
			&embeddingTwice{&embeddingCluster{}, ""},
			"the transport_test.ClusterMethods that a *transport_test.embeddingTwice embeds is nil",
		},
		{embeddingScripter{embedding{}}, "the *redis.Client that a transport_test.embeddingScripter embeds is nil"},
		{
			embeddingScripter{embeddingByValue{}},
			"the transport_test.ClusterMethods that a transport_test.embeddingScripter embeds is nil",
		},
		{stub{}, ""},
		{&stub{}, ""},
	} {
		conn, err := goredis.New(tt.client)
		if err != nil {
			t.Errorf("%T: %v", tt.client, err)
			continue
		}
		r := transport.New(conn)
		call := &transport.Call{Script: transport.NewScript("return 1"), Keys: []any{"a"}, Ctx: t.Context()}
		r.Do(context.Background(), call)
		switch {
		case tt.want == "" && call.Err != nil:
			t.Errorf("%T: %v", tt.client, call.Err)
		case tt.want != "" && (fmt.Sprint(call.Err) != tt.want || !transport.IsFinal(call.Err) || call.Doubtful):
			t.Errorf("%T: %v, want %s, as the final answer", tt.client, call.Err, tt.want)
		}
	}
}
