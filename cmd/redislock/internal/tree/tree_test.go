package tree

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/cmd/redislock/internal/clitest"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/script"
)

func TestTree(t *testing.T) { clitest.RunSpecs(t, "tree") }

// longTTL is read as the same for as long as a spec takes.
const longTTL = 76*time.Hour + 30*time.Minute

// of returns the metadata of a process on that host, whose lock is as old as longTTL.
func of(host string) string {
	since := time.Now().Add(-longTTL).UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{"host":"%s","pid":41,"user":"bob","command":"./ship","since":"%s"}`, host, since)
}

// tokenOf returns a token like those of the library, the same in each run.
func tokenOf(name string) string { return name + strings.Repeat("0", keyname.TokenLength-len(name)) }

// hold sets keys to the value of a lock.
func hold(ctx context.Context, client redis.Cmdable, name, metadata string, keys ...string) {
	GinkgoHelper()
	for _, key := range keys {
		Expect(client.Set(ctx, key, strings.TrimSpace(tokenOf(name)+" "+metadata), longTTL).Err()).To(Succeed())
	}
}

// waiter is a waiter in the lines of some keys.
type waiter struct {
	name  string // of its token, and of its process
	wants string // keys, one word each
	holds string // names of locks, and their keys, as in "one=a,b two=c"
	ago   time.Duration
	limit int // how many holders it would let the keys have; 0 for 1, -1 for no limit
}

// stand puts a waiter into its lines.
func (w waiter) stand(ctx context.Context, client redis.Cmdable) {
	GinkgoHelper()
	const life = 600 // seconds
	now, err := client.Time(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	wants := strings.Fields(w.wants)
	var holds []script.Holding
	for lock := range strings.FieldsSeq(w.holds) {
		name, keys, _ := strings.Cut(lock, "=")
		holds = append(holds, script.Holding{Token: tokenOf(name), Keys: strings.Split(keys, ",")})
	}
	names, count := script.WriteNames(wants, holds), fmt.Sprint(len(wants))
	if w.limit != 0 {
		count = "00"
	}
	id := w.name + ".1/1"
	ticket := float64(now.Add(-w.ago).UnixMicro())
	entry := fmt.Sprintf("%s %s 60000 0+%d %s%s %s", id, count, len(names), names, tokenOf(w.name), of("host-"+w.name))
	mark := -float64(now.Add(500*time.Second).UnixMilli()*4096 + 2*life)
	for _, key := range wants {
		members := []redis.Z{{Score: ticket, Member: entry}, {Score: mark, Member: "~" + w.name + ".1"}}
		switch {
		case w.limit > 0:
			members = append(members, redis.Z{Score: -float64(w.limit), Member: "=" + id})
		case w.limit < 0:
			members = append(members, redis.Z{Score: -ticket, Member: "=" + id})
		}
		Expect(client.ZAdd(ctx, keyname.LineOf(key), members...).Err()).To(Succeed())
	}
}

// stage makes locks and waiters: a tree of three levels, a circle, a key that nobody holds, and a shared key.
func stage(ctx context.Context, client redis.Cmdable) {
	GinkgoHelper()
	hold(ctx, client, "ann", of("api-1"), "order:7", "stock:42")
	hold(ctx, client, "ben", of("api-2"), "user:9")
	hold(ctx, client, "cat", "", "circle:a")
	hold(ctx, client, "dan", "job 7", "circle:b")
	for _, w := range []waiter{
		{name: "ewa", wants: "order:7", ago: 4 * time.Hour, holds: "ben=user:9"},
		{name: "fay", wants: "stock:42 stock:43", ago: 3 * time.Hour},
		{name: "gus", wants: "user:9", ago: 2 * time.Hour, holds: "other=cache:1,cache:2"},
		{name: "hal", wants: "circle:b", ago: 2 * time.Hour, holds: "cat=circle:a"},
		{name: "ida", wants: "circle:a", ago: 2 * time.Hour, holds: "dan=circle:b"},
	} {
		w.stand(ctx, client)
	}
}

var _ = Describe("tree", func() {
	on := clitest.OnServer()

	show := func(args ...string) string {
		GinkgoHelper()
		session := on.Run(append([]string{"tree"}, args...)...)
		Expect(session).To(gexec.Exit(0), clitest.Stderr(session))
		return clitest.Stdout(session)
	}

	It("shows who waits for whom, and who waits in a circle", func(ctx SpecContext) {
		stage(ctx, on.Client)
		fmt.Println(show())
		fmt.Println(show("--json"))
		fmt.Println(show("--dot"))
		_ = slices.Sorted[int]
	})
})
