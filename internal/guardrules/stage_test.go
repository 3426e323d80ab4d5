//go:build unix

package guardrules_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/spec"
)

// wait is how long a spec waits for what takes a moment, or a failover, on a calm machine.
const wait = 30 * time.Second

// A stage is the servers to which an event happens, and two databases on them: one whose locks have no guard, and one whose
// locks have one. In each, a lock is kept, and a rival tries to get the same key.
type stage struct {
	server   *redistest.Server   // the one server, or the first master
	replica  *redistest.Server   // nil without one
	sentinel *redistest.Sentinel // nil without one
	clock    *clock              // of one of the servers; nil if that is right
	ttl      time.Duration       // of all locks, and the longest

	serves  atomic.Pointer[redistest.Server] // the server that clients connect to, unless sentinels say
	without *database
	with    *database
}

// serve leads clients to a server, and cuts them off from the one before.
func (s *stage) serve(ctx context.Context, server *redistest.Server) {
	GinkgoHelper()
	if before := s.serves.Swap(server); before != nil && before.Pid() != 0 {
		Expect(operator(before).Do(ctx, "client", "kill", "type", "normal").Err()).To(Succeed())
	}
}

// operator returns a client for a server, whichever clients connect to.
func operator(server *redistest.Server) *redis.Client {
	return spec.Connect(&redis.Options{Addr: server.Addr()})
}

// follow starts a replica of the server that has been started as a master.
func (s *stage) follow(env []string, config ...string) {
	GinkgoHelper()
	var err error
	s.replica, err = redistest.StartReplica(s.server, env, config...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.replica.Close)
}

// promote makes the replica a master, and leads clients to it. The first master goes on, as a master.
func (s *stage) promote(ctx context.Context) {
	GinkgoHelper()
	Expect(s.replica.Promote()).To(Succeed())
	s.serve(ctx, s.replica)
}

// both does the same in both databases of the server that serves.
func (s *stage) both(do func(client *redis.Client) error) {
	GinkgoHelper()
	for _, db := range []*database{s.without, s.with} {
		Expect(do(db.client)).To(Succeed())
	}
}

// A database is where locks have a guard, or none.
type database struct {
	*stage
	client   *redis.Client
	holder   *redislock.Client
	others   *redislock.Client
	closed   chan redislock.GuardClosed
	restored chan redislock.Restored

	lock  *redislock.Lock // on key; it is kept
	kept  context.Context
	until time.Time // of the lock, before the event

	grants chan time.Time // to the rival; the first one ends it
	stop   func()         // ends the rival
}

// key is what the holder has and its rival wants.
const key = "a"

// open opens a database of the server that serves.
func (s *stage) open(number int, options ...redislock.ClientOption) *database {
	d := s.occupy(func(tracer redislock.ClientOption) *redislock.Client {
		return redislock.New(s.connect(number), append(options, tracer)...)
	})
	d.client = s.connect(number)
	return d
}

// occupy makes a database of Clients that connect returns.
func (s *stage) occupy(connect func(tracer redislock.ClientOption) *redislock.Client) *database {
	d := &database{
		stage: s, grants: make(chan time.Time, 1),
		closed: make(chan redislock.GuardClosed, 100), restored: make(chan redislock.Restored, 100),
	}
	tracer := redislock.WithTracer(&redislock.Tracer{
		GuardClosed: func(_ context.Context, e redislock.GuardClosed) { d.closed <- e },
		Restored:    func(_ context.Context, e redislock.Restored) { d.restored <- e },
	})
	d.holder, d.others = connect(tracer), connect(tracer)
	DeferCleanup(d.holder.Close)
	DeferCleanup(d.others.Close)
	return d
}

func (s *stage) connect(number int) *redis.Client {
	if s.sentinel == nil {
		return spec.Connect(&redis.Options{
			Addr: "the server that serves", DB: number, DialTimeout: time.Second, ReadTimeout: time.Second,
			Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, s.serves.Load().Addr())
			},
		})
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.sentinel.MasterName(), SentinelAddrs: s.sentinel.Addrs(), DB: number,
		DialTimeout: time.Second, ReadTimeout: time.Second,
	})
	DeferCleanup(client.Close)
	return client
}

// openGuard says that the server has forgotten nothing, as an operator can before the first locks.
func openGuard(ctx context.Context, client *redis.Client, maxTTL, deposed time.Duration) {
	GinkgoHelper()
	Expect(spec.OpenGuard(ctx, client, maxTTL, deposed)).To(Succeed())
}

// about returns a field of INFO.
func about(ctx context.Context, client *redis.Client, field string) string {
	GinkgoHelper()
	info, err := client.Info(ctx, "server", "replication").Result()
	Expect(err).NotTo(HaveOccurred())
	_, rest, found := strings.Cut(info, field+":")
	Expect(found).To(BeTrue(), info)
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// begin acquires the lock and keeps it, and sends its rival.
func (d *database) begin(ctx context.Context) {
	GinkgoHelper()
	d.lock = spec.Obtain(ctx, d.holder, d.ttl, nil, key)
	kept, end := d.lock.KeepAlive(ctx)
	d.kept, d.until = kept, d.lock.Until()

	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // ends with running
		defer close(ended)
		for running.Err() == nil {
			if _, err := d.others.Obtain(running, key, d.ttl, nil); err == nil {
				d.grants <- time.Now()
				return
			}
			select {
			case <-running.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	d.stop = func() {
		cancel()
		<-ended
		end()
	}
	DeferCleanup(d.stop)
}

// obtain is Obtain of another caller, for as long as it gets no answer.
func (d *database) obtain(ctx context.Context, key string) (*redislock.Lock, error) {
	GinkgoHelper()
	var lock *redislock.Lock
	var err error
	Eventually(func() error {
		if lock, err = d.others.Obtain(ctx, key, d.ttl, &redislock.Options{Explain: true}); isAnswer(err) {
			return nil
		}
		return err
	}).WithTimeout(wait).WithPolling(10 * time.Millisecond).Should(Succeed())
	return lock, err
}

// isAnswer reports whether err says whether the caller has the lock.
func isAnswer(err error) bool { return err == nil || errors.Is(err, redislock.ErrNotObtained) }

// opens returns the earliest moment at which the guard may open, which refuses new locks. It is off by as long as the answer
// took, so it asks until an answer comes soon.
func (d *database) opens(ctx context.Context) time.Time {
	GinkgoHelper()
	for {
		asked := time.Now()
		_, err := d.obtain(ctx, "another key")
		took := time.Since(asked)
		refused, ok := errors.AsType[*redislock.RefusedError](err)
		Expect(ok).To(BeTrue(), "refused: %v", err)
		Expect(refused.Closed).To(BeNumerically(">", 0))
		if took < 5*time.Millisecond {
			return asked.Add(refused.Closed)
		}
	}
}

// A fate is what an event does to the lock, and to those who want its key.
type fate string

const (
	keeps    fate = "is kept"                                               // nobody else gets the key
	loses    fate = "is lost, and another caller gets the key before Until" // with a guard: not noticed
	closes   fate = "is kept, while the guard closes needlessly"            // its key was there all the time
	lapses   fate = "lapses, and nobody else gets the key before"
	restores fate = "is put back, while the guard is closed for longer than the lock's Until" // its key was gone
)

// meets waits until the lock has met its fate.
func (d *database) meets(ctx context.Context, f fate) {
	GinkgoHelper()
	if f == loses {
		var granted time.Time
		Eventually(d.grants).WithTimeout(wait).Should(Receive(&granted))
		Expect(granted).To(BeTemporally("<", d.until), "while the first caller counts on its lock")
		Eventually(d.kept.Done()).WithTimeout(wait).Should(BeClosed())
		Expect(context.Cause(d.kept)).To(MatchError(redislock.ErrLockNotHeld))
		Expect(d.closed).NotTo(Receive())
		return
	}
	if f == closes || f == restores {
		Expect(d.opens(ctx)).To(BeTemporally(">=", d.until), "nothing is granted before the lock would have ended")
		Eventually(d.closed).WithTimeout(wait).Should(Receive(HaveField("For", BeNumerically(">", 0))))
	}
	if f == restores {
		var back redislock.Restored
		Eventually(d.restored).WithTimeout(wait).Should(Receive(&back))
		Expect(back).To(Equal(redislock.Restored{Keys: []string{key}, Back: []string{key}}))
	}
	Eventually(func(g Gomega) {
		if cause := context.Cause(d.kept); cause != nil {
			StopTrying("the lock is lost").Wrap(cause).Now()
		}
		g.Expect(d.lock.Until()).To(BeTemporally(">", d.until), "it is renewed")
	}).WithTimeout(wait).Should(Succeed())
	Expect(d.client.Get(ctx, key).Val()).To(Equal(d.lock.Token()))
	Expect(d.restored).NotTo(Receive(), "once")
	Expect(d.grants).NotTo(Receive(), "nobody else had the lock")
	d.stop()
	Expect(d.lock.Release(ctx)).To(Succeed())
	Expect(d.client.Exists(ctx, key).Val()).To(BeZero())
}
