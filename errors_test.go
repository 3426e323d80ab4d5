package redislock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/faultproxy"
	"github.com/redislock/redislock/internal/testing/incarnation"
	"github.com/redislock/redislock/internal/testing/spec"
)

// errorTable returns the table under "Errors" in the README: its columns, and for each row the methods and its cells.
func errorTable() (causes []string, rows map[string][]string) {
	_, section, _ := strings.Cut(spec.Read("README.md"), "\n## Errors\n")
	rows = map[string][]string{}
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			if causes != nil && line == "" {
				break
			}
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if causes == nil {
			causes = cells[1:]
			continue
		}
		for method := range strings.SplitSeq(cells[0], ",") {
			method = strings.TrimSpace(method)
			if !strings.HasPrefix(method, "with ") {
				method = strings.Trim(method, "`")
			}
			rows[method] = cells[1:]
		}
	}
	return causes, rows
}

var _ = spec.DescribeOnRedis("The table of errors in the README:", func(on *spec.Redis) {
	var proxy *faultproxy.Proxy
	var locks *redislock.Client
	var lock *redislock.Lock
	var ttl time.Duration
	keys := []string{"a", "b"}

	BeforeEach(func(ctx SpecContext) {
		ttl = time.Minute
		proxy = on.NewProxy()
		locks = redislock.New(spec.Connect(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 300 * time.Millisecond, MaxRetries: -1}))
		DeferCleanup(locks.Close)
		lock = spec.Obtain(ctx, locks, time.Minute, nil, keys...)
	})

	isObtain := func(method string) bool {
		return strings.HasPrefix(method, "Obtain") || strings.HasPrefix(method, "with ")
	}
	methods := map[string]func(ctx context.Context) (any, error){
		"Obtain":      func(ctx context.Context) (any, error) { return locks.Obtain(ctx, "a", ttl, nil) },
		"ObtainMulti": func(ctx context.Context) (any, error) { return locks.ObtainMulti(ctx, keys, ttl, nil) },
		"with `Options.Explain`": func(ctx context.Context) (any, error) {
			return locks.ObtainMulti(ctx, keys, ttl, &redislock.Options{Explain: true})
		},
		"Refresh": func(ctx context.Context) (any, error) { return nil, lock.Refresh(ctx, ttl, nil) },
		"Release": func(ctx context.Context) (any, error) { return nil, lock.Release(ctx) },
		"TTL":     func(ctx context.Context) (any, error) { return lock.TTL(ctx) },
		"Attach":  func(ctx context.Context) (any, error) { return locks.Attach(ctx, keys, lock.Token()) },
		"Inspect": func(ctx context.Context) (any, error) { return locks.Inspect(ctx, keys...) },
	}
	// Each cause returns the ctx to call the method with.
	causes := map[string]func(ctx context.Context, method string) context.Context{
		"all keys taken or lost": func(ctx context.Context, method string) context.Context {
			if !isObtain(method) {
				on.Client.Del(ctx, keys...)
			}
			return ctx
		},
		"some keys lost": func(ctx context.Context, _ string) context.Context {
			on.Client.Del(ctx, "b")
			return ctx
		},
		"answer after the ttl": func(ctx context.Context, method string) context.Context {
			if isObtain(method) {
				on.Client.Del(ctx, keys...)
			}
			ttl = 100 * time.Millisecond // and a Refresh waits for 250 ms more
			proxy.Add(faultproxy.Rule{
				Match: faultproxy.Command("evalsha", "eval"), Action: faultproxy.DelayReply(120 * time.Millisecond),
			})
			return ctx
		},
		"ctx ended": func(ctx context.Context, _ string) context.Context {
			proxy.Add(faultproxy.Rule{Match: faultproxy.Command("evalsha", "eval"), Action: faultproxy.BlackHole()})
			limited, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			DeferCleanup(cancel)
			DeferCleanup(func() { // what goes on in the background ends soon
				proxy.RemoveAll()
				proxy.CutAll()
			})
			return limited
		},
		"bad arguments": func(context.Context, string) context.Context { return nil },
		"Redis or network": func(ctx context.Context, _ string) context.Context {
			proxy.Add(faultproxy.Rule{Match: faultproxy.Command("evalsha", "eval"), Action: faultproxy.RefuseReply("ERR broken")})
			return ctx
		},
		"Redis forgot, guard closed": func(ctx context.Context, _ string) context.Context {
			if on.Memory != nil {
				incarnation.Of(on.Memory)
			}
			on.Client.FlushDB(ctx)
			Expect(spec.OpenGuard(ctx, on.Client, time.Minute, 0)).To(Succeed())
			locks = redislock.New(on.Client, redislock.WithGuard(time.Minute, 0))
			DeferCleanup(locks.Close)
			lock = spec.Obtain(ctx, locks, time.Minute, nil, keys...)
			on.Client.FlushDB(ctx)
			return ctx
		},
	}
	// Each cell says what the method returns.
	cells := map[string]func(method string, result any, err error){
		"`ErrNotObtained`": func(_ string, _ any, err error) { Expect(err).To(BeIdenticalTo(redislock.ErrNotObtained)) },
		"`*RefusedError`": func(_ string, _ any, err error) {
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			refused := spec.Refusal(err)
			Expect(refused.Key).To(Equal("a"))
			Expect(refused.Token).To(Equal(lock.Token()))
		},
		"`*RefusedError` with `Closed`": func(_ string, _ any, err error) {
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			refused, ok := errors.AsType[*redislock.RefusedError](err)
			Expect(ok).To(BeTrue())
			Expect(refused.Closed).To(BeNumerically("~", 30*time.Second, 30*time.Second))
			Expect(refused.Key).To(BeEmpty())
		},
		"nil; keys are back": func(_ string, _ any, err error) {
			Expect(err).NotTo(HaveOccurred())
			for _, key := range keys {
				Expect(on.Client.Get(context.Background(), key).Val()).To(Equal(lock.Token()))
			}
		},
		"nil": func(_ string, _ any, err error) { Expect(err).NotTo(HaveOccurred()) },
		"matches `ErrNotObtained`": func(_ string, _ any, err error) {
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
		},
		"`ErrLockNotHeld`": func(_ string, _ any, err error) { Expect(err).To(BeIdenticalTo(redislock.ErrLockNotHeld)) },
		"`ErrInvalid`":     func(_ string, _ any, err error) { Expect(err).To(MatchError(redislock.ErrInvalid)) },
		"`*LostError`": func(method string, _ any, err error) {
			Expect(spec.LostKeys(err)).To(Equal([]string{"b"}))
			Expect(err).To(MatchError(redislock.ErrLockNotHeld))
			if method == "Refresh" {
				Expect(err).To(MatchError(redislock.ErrNotObtained))
			} else {
				Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			}
		},
		"matches `ErrNotObtained` and `ctx.Err()`": func(_ string, _ any, err error) {
			Expect(err).To(MatchError(redislock.ErrNotObtained))
			Expect(err).To(MatchError(context.DeadlineExceeded))
		},
		"matches `ErrNotObtained` and `ErrLapsed`": func(_ string, _ any, err error) { Expect(err).To(spec.BeTooLate) },
		"wraps `ctx.Err()`": func(method string, _ any, err error) {
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).To(MatchError(HavePrefix(`redislock: ` + strings.ToLower(method) + ` "a" and 1 more: `)))
			Expect(err).NotTo(MatchError(redislock.ErrNotObtained))
			Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
		},
		"wraps `ctx.Err()`; it goes on": func(_ string, _ any, err error) {
			Expect(err).To(MatchError(context.DeadlineExceeded))
			Expect(err).NotTo(MatchError(redislock.ErrLockNotHeld))
			sent := proxy.Requests(spec.Running("release"))
			Eventually(func() int { return proxy.Requests(spec.Running("release")) }).Should(BeNumerically(">", sent))
		},
		"wrapped": func(method string, _ any, err error) {
			operation := strings.ToLower(method)
			if isObtain(method) {
				operation = "obtain"
			}
			Expect(err).To(MatchError(HavePrefix("redislock: " + operation + ` "a"`)))
			Expect(err).To(MatchError(HaveSuffix(": ERR broken")))
			var answer redis.Error
			Expect(errors.As(err, &answer)).To(BeTrue())
		},
		"0": func(_ string, result any, err error) {
			Expect(err).NotTo(HaveOccurred())
			Expect(result).To(BeZero())
		},
		"shows it": func(_ string, result any, err error) {
			Expect(err).NotTo(HaveOccurred())
			Expect(result).To(ContainElement(HaveField("Token", "")))
		},
	}

	columns, rows := errorTable()
	It("has a row for each method and a column for each cause", func() {
		Expect(columns).To(HaveLen(len(causes)))
		Expect(rows).To(HaveLen(len(methods)))
	})
	for _, method := range slices.Sorted(maps.Keys(rows)) {
		for i, cell := range rows[method] {
			if cell == "–" {
				continue
			}
			It(method+" when "+columns[i]+": "+cell, func(ctx SpecContext) {
				Expect(causes).To(HaveKey(columns[i]))
				Expect(cells).To(HaveKey(cell))
				result, err := methods[method](causes[columns[i]](ctx, method))
				cells[cell](method, result, err)
			})
		}
	}
})

var _ = spec.DescribeOnRedis("A ctx whose Err cannot be compared", func(on *spec.Redis) {
	It("ends an Obtain without a panic", func() {
		_, err := redislock.New(on.Client).Obtain(uncomparable{context.Background()}, "a", time.Minute, nil)
		Expect(err).To(MatchError(redislock.ErrNotObtained))
		Expect(err).To(MatchError(context.Canceled))
	})
})

// uncomparable is a ctx of the caller's own that has ended, with an error that cannot be compared.
type uncomparable struct{ context.Context }

func (uncomparable) Err() error            { return several{context.Canceled} }
func (uncomparable) Done() <-chan struct{} { return closedChannel }

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

var _ = Describe("An error says how to mend", func() {
	// listen returns the address of something that does that with each connection, and is no Redis.
	listen := func(serve func(conn net.Conn)) string {
		GinkgoHelper()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		go func() { // ends with the listener
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				serve(conn)
			}
		}()
		return listener.Addr().String()
	}
	obtain := func(opt *redis.Options) error {
		opt.MaxRetries, opt.DialerRetries = -1, 1
		client := redis.NewClient(opt)
		DeferCleanup(client.Close)
		_, err := redislock.New(client).Obtain(context.Background(), "a", time.Minute, nil)
		return err
	}

	It("a server that closes the connection: it may speak TLS", func() {
		err := obtain(&redis.Options{Addr: listen(func(conn net.Conn) { conn.Close() })})
		Expect(err).To(MatchError(ContainSubstring(`obtain "a": `)))
		Expect(err).To(MatchError(ContainSubstring("does the server speak TLS? Then set TLSConfig")))
	})

	It("a server that does not speak TLS: no ctx of the caller has ended", func() {
		var open []net.Conn // only the listener's goroutine uses it
		err := obtain(&redis.Options{
			Addr: listen(func(conn net.Conn) { open = append(open, conn) }), TLSConfig: &tls.Config{ServerName: "localhost"}, DialTimeout: 100 * time.Millisecond,
		})
		Expect(err).To(MatchError(ContainSubstring("does the server speak TLS on this port")))
		Expect(err).NotTo(MatchError(context.DeadlineExceeded))
	})
})

var _ = spec.DescribeFaulty("An error of a server", func(on *spec.FaultyRedis) {
	It("says what it means in a program", func(ctx SpecContext) {
		locks := on.ConnectBy(nil)
		for answer, hint := range map[string]string{
			"MOVED 15495 10.0.0.7:6379":                                        "(it is a node of a Cluster; connect with redis.NewClusterClient)",
			"NOAUTH Authentication required.":                                  "(it requires a password; set Password in redis.Options)",
			"NOPERM this user has no permissions to run the 'evalsha' command": "(let an administrator grant it (ACL SETUSER))",
		} {
			fault := on.Broken("obtain", 0, faultproxy.RefuseReply(answer))
			_, err := locks.Obtain(ctx, "a", time.Minute, nil)
			Expect(err).To(MatchError(`redislock: obtain "a": ` + answer + " " + hint))
			fault.Remove()
		}
	})
})
