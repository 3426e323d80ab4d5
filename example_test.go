package redislock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/testing/incarnation"
)

// setUp stands for what a program has anyway: a context, and a client of its Redis. Here that is one in memory.
func setUp() (context.Context, *redis.Client) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	server.ClockTTL(true)
	return context.Background(), redis.NewClient(&redis.Options{Addr: server.Addr()})
}

func Example() {
	ctx, client := setUp()
	locks := redislock.New(client)

	lock, err := locks.ObtainMulti(ctx, []string{"order:7", "stock:42", "account:3"}, 10*time.Second, nil)
	if err == redislock.ErrNotObtained {
		fmt.Println("one of them is taken, so none is ours")
		return
	} else if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	fmt.Println("all three are ours")
	// Output: all three are ours
}

func ExampleClient_ObtainMulti() {
	ctx, client := setUp()
	locks := redislock.New(client)
	first, err := locks.ObtainMulti(ctx, []string{"order:7", "stock:42"}, time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}

	_, err = locks.ObtainMulti(ctx, []string{"stock:42", "account:3"}, time.Minute, nil)
	fmt.Println(err)
	fmt.Println("account:3 is locked:", client.Exists(ctx, "account:3").Val() == 1)

	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = locks.ObtainMulti(ctx, []string{"stock:42", "account:3"}, time.Minute, nil)
	fmt.Println(err)
	// Output:
	// redislock: not obtained
	// account:3 is locked: false
	// <nil>
}

func ExampleOptions_queue() {
	ctx, client := setUp()
	locks := redislock.New(client)
	defer locks.Close()
	held, err := locks.Obtain(ctx, "stock:42", time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { held.Release(context.Background()) })

	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // first come, first served, for two seconds at most
	defer cancel()
	lock, err := locks.ObtainMulti(ctx, []string{"order:7", "stock:42"}, 10*time.Second, &redislock.Options{Queue: true})
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("two seconds were not enough")
		return
	} else if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	fmt.Println(lock.Keys())
	// Output: [order:7 stock:42]
}

func ExampleOptions_shared() {
	ctx, client := setUp()
	locks := redislock.New(client)

	lock, err := locks.ObtainMulti(ctx, []string{"account:3", "catalog", "gpu"}, 10*time.Second, &redislock.Options{
		Shared:  []string{"catalog"},      // other readers may hold it as well
		Permits: map[string]int{"gpu": 4}, // four may hold it, this lock included
	})
	if err != nil {
		log.Fatal(err)
	}

	reader := &redislock.Options{Shared: []string{"catalog"}}
	other, err := locks.Obtain(ctx, "catalog", 10*time.Second, reader)
	fmt.Println("another reader:", err)
	_, err = locks.Obtain(ctx, "catalog", 10*time.Second, nil)
	fmt.Println("a writer:", err)
	if err := errors.Join(lock.Release(ctx), other.Release(ctx)); err != nil {
		log.Fatal(err)
	}
	_, err = locks.Obtain(ctx, "catalog", 10*time.Second, nil)
	fmt.Println("a writer after the readers:", err)
	// Output:
	// another reader: <nil>
	// a writer: redislock: not obtained
	// a writer after the readers: <nil>
}

// While a lock is held, its key has no more holders than its caller said, however many ask for it later.
func ExampleOptions_permits() {
	ctx, client := setUp()
	locks := redislock.New(client)
	two := &redislock.Options{Permits: map[string]int{"gpu": 2}}
	if _, err := locks.Obtain(ctx, "gpu", 10*time.Second, two); err != nil {
		log.Fatal(err)
	}

	three := &redislock.Options{Permits: map[string]int{"gpu": 3}}
	for range 2 {
		_, err := locks.Obtain(ctx, "gpu", 10*time.Second, three)
		fmt.Println(err)
	}
	status, err := locks.Inspect(ctx, "gpu")
	if err != nil {
		log.Fatal(err)
	}
	for _, holder := range status[0].Holders {
		fmt.Println("a holder allows", holder.Limit)
	}
	// Unordered output:
	// <nil>
	// redislock: not obtained
	// a holder allows 3
	// a holder allows 2
}

func ExampleOptions_retryStrategy() {
	ctx, client := setUp()
	locks := redislock.New(client)
	held, err := locks.Obtain(ctx, "order:7", 50*time.Millisecond, nil)
	if err != nil {
		log.Fatal(err)
	}

	// Wait longer from try to try, spread by a fifth, for up to two seconds.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	lock, err := locks.Obtain(ctx, "order:7", 10*time.Second, &redislock.Options{
		RetryStrategy: redislock.Jitter(redislock.ExponentialBackoff(5*time.Millisecond, 100*time.Millisecond), 0.2),
	})

	fmt.Println(err, lock.Key(), time.Now().After(held.Until()))
	// Output: <nil> order:7 true
}

func ExampleLimitRetry() {
	ctx, client := setUp()
	locks := redislock.New(client)
	if _, err := locks.Obtain(ctx, "order:7", time.Minute, nil); err != nil {
		log.Fatal(err)
	}

	// One value serves any number of calls: each starts it afresh.
	patient := &redislock.Options{RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(5*time.Millisecond), 3)}
	for range 2 {
		_, err := locks.Obtain(ctx, "order:7", time.Minute, patient)
		fmt.Println(err)
	}
	// Output:
	// redislock: not obtained
	// redislock: not obtained
}

func ExampleLock_Refresh() {
	ctx, client := setUp()
	locks := redislock.New(client)
	lock, err := locks.Obtain(ctx, "report", 10*time.Second, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	if err := lock.Refresh(ctx, 10*time.Second, &redislock.Options{Metadata: "step: compute"}); err != nil {
		fmt.Println("stop, the lock is lost:", err)
		return
	}
	left, err := lock.TTL(ctx)
	fmt.Println(lock.Metadata(), left > 9*time.Second, err)
	// Output: step: compute true <nil>
}

func ExampleClient_Do() {
	ctx, client := setUp()
	locks := redislock.New(client)

	err := locks.Do(ctx, []string{"order:7", "stock:42"}, 200*time.Millisecond, nil, func(ctx context.Context) error {
		for _, step := range []string{"reserve", "charge", "ship"} {
			time.Sleep(100 * time.Millisecond) // in all, longer than the ttl
			if ctx.Err() != nil {
				return ctx.Err() // the lock is lost: stop
			}
			fmt.Println(step)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// reserve
	// charge
	// ship
	// <nil>
}

func ExampleLock_KeepAlive() {
	ctx, client := setUp()
	locks := redislock.New(client)
	lock, err := locks.Obtain(ctx, "report", 200*time.Millisecond, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	held, stop := lock.KeepAlive(ctx)
	defer stop()

	time.Sleep(300 * time.Millisecond)
	fmt.Println("still held:", held.Err() == nil)
	client.Del(ctx, "report") // somebody tidied up
	<-held.Done()
	fmt.Println(context.Cause(held))
	// Output:
	// still held: true
	// redislock: lock not held: "report" is gone
}

// The deadline of the context caps the whole hold, however well the renewals go.
func ExampleLock_KeepAlive_cap() {
	ctx, client := setUp()
	locks := redislock.New(client)
	lock, err := locks.Obtain(ctx, "report", 200*time.Millisecond, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)

	capped, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	held, stop := lock.KeepAlive(capped)
	defer stop()

	<-held.Done()
	fmt.Println(context.Cause(held))
	// Output: context deadline exceeded
}

func ExampleLock_Until() {
	ctx, client := setUp()
	locks := redislock.New(client)
	lock, err := locks.Obtain(ctx, "order:7", 50*time.Millisecond, nil)
	if err != nil {
		log.Fatal(err)
	}

	time.Sleep(60 * time.Millisecond) // the guarded work takes longer than thought

	if !time.Now().Before(lock.Until()) {
		fmt.Println("too late: somebody else may hold the lock by now")
		return
	}
	fmt.Println("write the result")
	// Output: too late: somebody else may hold the lock by now
}

// orders stands for a table with one order. Like a database, it executes the update of ExampleLock_FenceToken only if the
// fencing token of the last one is not higher.
type orders struct {
	state string
	fence int64
}

func (o *orders) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	if query != "UPDATE orders SET state = 'shipped', fence = $1 WHERE id = 7 AND fence <= $1" || len(args) != 1 {
		return nil, fmt.Errorf("unknown: %s %v", query, args)
	}
	if fence := args[0].(int64); o.fence <= fence {
		o.state, o.fence = "shipped", fence
		return driver.RowsAffected(1), nil
	}
	return driver.RowsAffected(0), nil
}

func ExampleLock_FenceToken() {
	ctx, client := setUp()
	locks := redislock.New(client)
	db := &orders{state: "paid"} // in a program, a *sql.DB
	slow, err := locks.Obtain(ctx, "order:7", 20*time.Millisecond, &redislock.Options{FenceKey: "order:7:fence"})
	if err != nil {
		log.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond) // hangs for longer than its ttl

	lock, err := locks.Obtain(ctx, "order:7", 10*time.Second, &redislock.Options{FenceKey: "order:7:fence"})
	if err != nil {
		log.Fatal(err)
	}
	ship := "UPDATE orders SET state = 'shipped', fence = $1 WHERE id = 7 AND fence <= $1"
	result, err := db.ExecContext(ctx, ship, lock.FenceToken())
	if err != nil {
		log.Fatal(err)
	}
	rows, _ := result.RowsAffected()
	fmt.Println("written in time:", rows)

	result, err = db.ExecContext(ctx, ship, slow.FenceToken())
	if err != nil {
		log.Fatal(err)
	}
	rows, _ = result.RowsAffected()
	fmt.Println("written too late:", rows)
	// Output:
	// written in time: 1
	// written too late: 0
}

func ExampleClient_Inspect() {
	ctx, client := setUp()
	locks := redislock.New(client)
	_, err := locks.Obtain(ctx, "order:7", time.Minute, &redislock.Options{
		Token:    "worker-1",
		Metadata: `{"host":"api-3","pid":4121}`, // or redislock.ProcessMetadata()
	})
	if err != nil {
		log.Fatal(err)
	}

	statuses, err := locks.Inspect(ctx, "order:7", "stock:42")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range statuses {
		fmt.Printf("%s: held by %q for %v more, %s\n", s.Key, s.Token, s.TTL.Round(time.Minute), s.Metadata)
	}
	// Output:
	// order:7: held by "worker-1" for 1m0s more, {"host":"api-3","pid":4121}
	// stock:42: held by "" for 0s more,
}

func ExampleClient_Attach() {
	ctx, client := setUp()
	lock, err := redislock.New(client).Obtain(ctx, "order:7", time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}
	keys, token := lock.Keys(), lock.Token() // handed to another process

	attached, err := redislock.New(client).Attach(ctx, keys, token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(attached.Release(ctx))
	fmt.Println(lock.Release(ctx))
	// Output:
	// <nil>
	// redislock: lock not held
}

func ExampleLostError() {
	ctx, client := setUp()
	locks := redislock.New(client)
	lock, err := locks.ObtainMulti(ctx, []string{"order:7", "stock:42"}, time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}
	client.Del(ctx, "stock:42") // somebody tidied up

	err = lock.Release(ctx) // frees order:7 all the same

	if lost, ok := errors.AsType[*redislock.LostError](err); ok {
		fmt.Println("lost:", lost.Keys)
	}
	fmt.Println(errors.Is(err, redislock.ErrLockNotHeld), client.Exists(ctx, "order:7").Val())
	// Output:
	// lost: [stock:42]
	// true 0
}

func ExampleWithTracer() {
	ctx, client := setUp()
	locks := redislock.New(client, redislock.WithTracer(&redislock.Tracer{
		ObtainEnd: func(_ context.Context, e redislock.ObtainEnd) {
			fmt.Println("obtain", e.Keys, "tries:", e.Tries, "error:", e.Err)
		},
		Lost: func(_ context.Context, e redislock.Lost) {
			fmt.Println("lost", e.LostKeys, "of", e.Keys, "because they are", e.Cause)
		},
	}))

	lock, err := locks.ObtainMulti(ctx, []string{"order:7", "stock:42"}, time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}
	client.Del(ctx, "stock:42")
	fmt.Println(lock.Release(ctx))
	// Output:
	// obtain [order:7 stock:42] tries: 1 error: <nil>
	// lost [stock:42] of [order:7 stock:42] because they are gone
	// redislock: lost 1 of 2 keys (1 gone, 0 another's): "stock:42"
}

func ExampleLogTracer() {
	ctx, client := setUp()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { // leave out what differs from run to run
			if a.Key == slog.TimeKey || a.Key == "held" {
				return slog.Attr{}
			}
			return a
		},
	}))
	locks := redislock.New(client, redislock.WithTracer(redislock.LogTracer(logger)))

	lock, err := locks.Obtain(ctx, "stock:42", time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}
	client.Set(ctx, "stock:42", "somebody", 0)
	_ = lock.Release(ctx)
	// Output:
	// level=WARN msg="redislock: lock lost" keys=stock:42 cause=taken error="redislock: lock not held"
}

func ExampleTracers() {
	ctx, client := setUp()
	var holds time.Duration
	count := &redislock.Tracer{Released: func(_ context.Context, e redislock.Released) { holds += e.Held }}
	locks := redislock.New(client, redislock.WithTracer(redislock.Tracers(redislock.LogTracer(slog.Default()), count)))

	lock, err := locks.Obtain(ctx, "stock:42", time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held for some time:", holds > 0)
	// Output: held for some time: true
}

func ExampleOptions_explain() {
	ctx, client := setUp()
	locks := redislock.New(client)
	_, err := locks.Obtain(ctx, "stock:42", time.Minute, &redislock.Options{Metadata: "host api-3, pid 4121"})
	if err != nil {
		log.Fatal(err)
	}

	_, err = locks.ObtainMulti(ctx, []string{"order:7", "stock:42"}, time.Minute, &redislock.Options{Explain: true})
	if refused, ok := errors.AsType[*redislock.RefusedError](err); ok {
		fmt.Printf("%s is held by %s for %v more, %d ahead\n",
			refused.Key, refused.Metadata, refused.TTL.Round(time.Minute), refused.Ahead)
	}
	fmt.Println("refused:", errors.Is(err, redislock.ErrNotObtained))
	// Output:
	// stock:42 is held by host api-3, pid 4121 for 1m0s more, 0 ahead
	// refused: true
}

// setUpGuarded is setUp for a Redis that has had a guard for a while, so the guard is open.
func setUpGuarded() (context.Context, *redis.Client) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	err = server.Set("redislock:guard", incarnation.Of(server).ID()+" 30000 0") // as redislock guard open does
	if err != nil {
		log.Fatal(err)
	}
	return context.Background(), redis.NewClient(&redis.Options{Addr: server.Addr()})
}

func ExampleWithGuard() {
	ctx, client := setUpGuarded()
	locks := redislock.New(client, redislock.WithGuard(30*time.Second, 0))
	lock, err := locks.Obtain(ctx, "order:7", 30*time.Second, nil)
	if err != nil {
		log.Fatal(err)
	}
	client.FlushAll(ctx) // Redis forgets
	_, err = locks.Obtain(ctx, "order:7", 30*time.Second, nil)
	refused, _ := errors.AsType[*redislock.RefusedError](err)
	fmt.Println("another caller is refused for", refused.Closed.Round(time.Second))
	fmt.Println("the holder:", lock.Refresh(ctx, 30*time.Second, nil))
	fmt.Println("its key is back:", client.Exists(ctx, "order:7").Val() == 1)
	// Output:
	// another caller is refused for 30s
	// the holder: <nil>
	// its key is back: true
}

func ExampleNewQuorum() {
	ctx, first := setUp()
	_, second := setUp()
	_, third := setUp()
	locks := redislock.NewQuorum([]redislock.RedisClient{first, second, third})
	lock, err := locks.Obtain(ctx, "order:7", 10*time.Second, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, server := range []*redis.Client{first, second, third} {
		for server.Exists(ctx, "order:7").Val() == 0 { // the last one may grant a moment after the majority
			time.Sleep(time.Millisecond)
		}
	}
	third.FlushAll(ctx) // one server has lost its data
	_, err = locks.Obtain(ctx, "order:7", 10*time.Second, nil)
	fmt.Println(err)
	fmt.Println(lock.Release(ctx))
	// Output:
	// redislock: not obtained
	// <nil>
}

// setUpCluster returns a client of a Cluster of two nodes, and a client of each node.
func setUpCluster() (ctx context.Context, cluster *redis.ClusterClient, first, second *redis.Client) {
	ctx, first = setUp()
	_, second = setUp()
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{
			{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: first.Options().Addr}}},
			{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: second.Options().Addr}}},
		}, nil
	}
	return ctx, redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots}), first, second
}

func ExampleOptions_acrossSlots() {
	ctx, cluster, first, second := setUpCluster()
	locks := redislock.New(cluster)
	lock, err := locks.ObtainMulti(ctx, []string{"order:7", "stock:42", "account:3"}, 10*time.Second,
		&redislock.Options{AcrossSlots: true})
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)
	fmt.Println(first.DBSize(ctx).Val()+second.DBSize(ctx).Val(), "keys on two nodes")
	// Output: 3 keys on two nodes
}

func ExampleClient_Do_nested() {
	ctx, client := setUp()
	locks := redislock.New(client)
	// reserve locks what it needs. Its caller may hold some of these keys.
	reserve := func(ctx context.Context) error {
		return locks.Do(ctx, []string{"stock:42", "account:3"}, time.Minute, nil, func(ctx context.Context) error {
			fmt.Println("reserved under", client.Exists(ctx, "order:7", "stock:42", "account:3").Val(), "keys")
			return nil
		})
	}

	err := locks.Do(ctx, []string{"order:7", "stock:42"}, time.Minute, nil, func(ctx context.Context) error {
		if err := reserve(ctx); err != nil { // acquires account:3, and relies on stock:42
			return err
		}
		fmt.Println("then", client.Exists(ctx, "order:7", "stock:42", "account:3").Val(), "are left")
		return nil
	})
	fmt.Println(err)
	// Output:
	// reserved under 3 keys
	// then 2 are left
	// <nil>
}
