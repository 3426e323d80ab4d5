package connect

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
	"github.com/redislock/redislock/internal/survey"
)

// Session is a connection to Redis for a command that asks something and ends.
type Session struct {
	*Target

	Client redis.UniversalClient
	Locks  *redislock.Client

	guard redislock.ClientOption // of Locks; nil for none
}

// Open connects. The caller calls Close.
func (t *Target) Open(ctx context.Context, opts ...redislock.ClientOption) (*Session, error) {
	client, err := t.Connect(ctx)
	if err != nil {
		return nil, err
	}
	guard, err := t.guardAt(ctx, client)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	opts = append(opts, guard)
	q, several := client.(*Quorum)
	if !several {
		return &Session{t, client, redislock.New(client, opts...), guard}, nil
	}
	var servers []redislock.RedisClient
	for _, server := range q.All {
		servers = append(servers, server)
	}
	return &Session{t, client, redislock.NewQuorum(servers, opts...), guard}, nil
}

// Close ends the connection.
func (s *Session) Close() {
	_ = s.Locks.Close()
	_ = s.Client.Close()
}

// answerLimit bounds one request to a Redis that has answered before.
const answerLimit = 5 * time.Second

// Line returns all who wait for a key. It asks Redis only if the status does not have them all.
func (s *Session) Line(ctx context.Context, status redislock.Status) ([]redislock.Waiter, error) {
	if status.Waiters <= len(status.Line) {
		return status.Line, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	line, err := s.Locks.Line(ctx, status.Key)
	return line, s.Refusal(err)
}

// Inspect returns who holds keys.
func (s *Session) Inspect(ctx context.Context, keys []string) ([]redislock.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	statuses, err := s.Locks.Inspect(ctx, keys...)
	return statuses, s.Refusal(err)
}

// Refusal gives an error of the library its exit code.
func (t *Target) Refusal(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redislock.ErrInvalid), redis.HasErrorPrefix(err, "CROSSSLOT"):
		return cli.Usagef("%w", err)
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		if explained := t.Explain(err); explained != err {
			return explained
		}
	}
	return cli.Unavailablef("the Redis at %s: %w", t.Where, err) // with the operation and the key
}

// Masters returns a client for each server that has keys: all masters of a Cluster, or the servers of a quorum that answer
// now, of which there must be a majority.
func Masters(ctx context.Context, client redis.UniversalClient) ([]*redis.Client, error) {
	if q, isQuorum := client.(*Quorum); isQuorum {
		return q.answering(ctx, straggler)
	}
	masters, err := survey.MastersOf(ctx, client)
	all := make([]*redis.Client, len(masters))
	for i, master := range masters {
		all[i] = master.(*redis.Client) // connect returns no other client
	}
	return all, err
}

// Survey returns what looks through all keys.
func (s *Session) Survey() *survey.Redis {
	q, isQuorum := s.Client.(*Quorum)
	if !isQuorum {
		return survey.Of(s.Locks, s.Client)
	}
	masters := func(ctx context.Context) (all []redis.UniversalClient, err error) {
		servers, err := q.answering(ctx, straggler)
		for _, server := range servers {
			all = append(all, server)
		}
		return all, err
	}
	return &survey.Redis{Locks: s.Locks, Quorum: len(q.All), Masters: masters}
}

// neighborPatience bounds a connection to a neighbor, and each answer. Often it cannot be reached from here.
const neighborPatience = time.Second

// Neighbor returns a client for another server, with the same user, password and TLS. It tries once.
func (t *Target) Neighbor(server *redis.Client, addr string) *redis.Client {
	opt := *server.Options()
	opt.Network, opt.Addr, opt.Dialer = "tcp", addr, t.dialer(opt.TLSConfig, min(t.patience, neighborPatience))
	opt.MaxRetries, opt.ReadTimeout, opt.WriteTimeout = -1, neighborPatience, neighborPatience
	return redis.NewClient(&opt)
}

// ask returns what a server says that it is: standalone, cluster or sentinel. No ACL forbids HELLO, and it costs as much as
// a PING. Before Redis 6.2 it needs the version of the protocol: ask repeats that of go-redis.
func ask(ctx context.Context, client redis.UniversalClient, protocol int) (mode string, err error) {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello", cmp.Or(protocol, 3))
	if err := client.Process(ctx, once{hello}); err != nil {
		if redis.HasErrorPrefix(err, "unknown command") { // it is older than Redis 6, or not Redis; but it answers
			return "", nil
		}
		return "", err
	}
	mode, _ = hello.Val()["mode"].(string)
	return mode, nil
}

// Ping asks a Redis once whether it answers; of a quorum, whether a majority does.
func Ping(ctx context.Context, client redis.UniversalClient) error {
	if q, ok := client.(*Quorum); ok {
		_, err := q.answering(ctx, 0)
		return err
	}
	return client.Process(ctx, once{redis.NewCmd(ctx, "ping")})
}

// once is a command that go-redis does not repeat: somebody at a terminal wants to know at once what is wrong.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }
