package script_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/spec"
)

const (
	silent = 22 * time.Second // a waiter last heard of so long ago is live, but likely dead
	dead   = time.Minute      // a waiter last heard of so long ago is dead
)

// fillLine adds n waiters to the end of a line, each of an inbox of its own, which was last heard of so long ago by the clock
// of the server. It returns the ticket of the first of them.
func fillLine(ctx context.Context, client *redis.Client, line, inbox string, n int, ago time.Duration) (ticket int64) {
	GinkgoHelper()
	now, err := client.Time(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	ticket = now.UnixMicro()
	if last := client.ZRevRangeWithScores(ctx, line, 0, 0).Val(); len(last) > 0 {
		ticket = max(ticket, int64(last[0].Score)+1)
	}
	const life = 30 // seconds
	deadline := now.Add(life*time.Second - ago).UnixMilli()
	members := make([]redis.Z, 0, 2*n)
	for i := range n {
		name := fmt.Sprintf("%s-%d", inbox, i)
		members = append(members, redis.Z{Score: float64(ticket + int64(i)), Member: name + "/1 0 30000 0 token"},
			redis.Z{Score: -float64(deadline*4096 + 2*life), Member: "~" + name})
	}
	Expect(client.ZAdd(ctx, line, members...).Err()).To(Succeed())
	return ticket
}

var _ = spec.DescribeOnRedis("A release", func(on *spec.Redis) {
	It("wakes the first in line, also if it is silent, but nobody else", func(ctx SpecContext) {
		inbox := on.Client.PSubscribe(ctx, spec.Inboxes+"*")
		DeferCleanup(inbox.Close)
		Expect(inbox.Receive(ctx)).NotTo(BeNil())
		release := func(line string, n int, ago time.Duration) (woken []string) {
			fillLine(ctx, on.Client, line, line, n, ago)
			Expect(on.Client.Eval(ctx, spec.Source("release"), []string{"gone", line}, "t", 1).Val()).To(Equal(spec.List{int64(-1)}))
			Expect(on.Client.Publish(ctx, spec.Inboxes+"end", "").Err()).To(Succeed())
			for {
				message, err := inbox.ReceiveMessage(ctx)
				Expect(err).NotTo(HaveOccurred())
				if message.Channel == spec.Inboxes+"end" {
					return woken
				}
				woken = append(woken, message.Channel[len(spec.Inboxes):]+"/"+message.Payload)
			}
		}
		Expect(release("a", 5, 0)).To(Equal([]string{"a-0/1"}))
		Expect(release("b", 5, silent)).To(Equal([]string{"b-0/1"}))
		fillLine(ctx, on.Client, "c", "gone", 500, dead)
		Expect(release("c", 5, silent)).To(Equal([]string{"c-0/1"}))
		Expect(on.Client.ZCard(ctx, "c").Val()).To(Equal(int64(10)), "the dead are removed")
	})
})

// These specs count the commands that a script runs, because the time that it takes depends on the machine.
var _ = spec.DescribeOn(spec.OnServer, "However many in line are silent or dead,", func(*spec.Redis) {
	var client *redis.Client

	BeforeEach(func() {
		client = spec.Connect(&redis.Options{Addr: spec.StartServer().Addr()})
	})

	// ran returns how often a script ran each command.
	ran := func(ctx context.Context, script string, keys []string, args ...any) (reply any, commands map[string]int) {
		GinkgoHelper()
		Expect(client.ConfigResetStat(ctx).Err()).To(Succeed())
		reply, err := client.Eval(ctx, spec.Source(script), keys, args...).Result()
		Expect(err).NotTo(HaveOccurred())
		commands = map[string]int{}
		for _, stat := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(client.Info(ctx, "commandstats").Val(), -1) {
			commands[stat[1]], _ = strconv.Atoi(stat[2])
		}
		return reply, commands
	}
	atMost := func(n int) OmegaMatcher { return BeNumerically("<=", n) }

	It("a release looks at one live waiter of a line", func(ctx SpecContext) {
		keys := []string{"a"}
		fillLine(ctx, client, "line", "silent", 5000, silent)
		_, commands := ran(ctx, "release", append(keys, "line"), "t", len(keys))
		Expect(commands["publish"]).To(Equal(1))
		Expect(commands["zscore"]).To(atMost(1))
		Expect(commands["zrangebyscore"]).To(atMost(1))

		for i := range 200 {
			keys = append(keys, strconv.Itoa(i))
		}
		all := keys
		for i := range keys {
			all = append(all, fmt.Sprint("line ", i))
			fillLine(ctx, client, all[len(all)-1], "silent", 40, silent)
		}
		_, commands = ran(ctx, "release", all, "t", len(keys))
		Expect(commands["publish"]).To(Equal(1))
		Expect(commands["zscore"]).To(atMost(len(keys)))
		Expect(commands["zrangebyscore"]).To(atMost(len(keys)))
	})

	It("a release removes many dead waiters with one command, and wakes the live one behind them", func(ctx SpecContext) {
		fillLine(ctx, client, "line", "dead", 5000, dead)
		fillLine(ctx, client, "line", "live", 2, 0)
		_, commands := ran(ctx, "release", []string{"gone", "line"}, "t", 1)
		Expect(commands["publish"]).To(Equal(1))
		Expect(commands["zrem"]).To(atMost(20))
		Expect(commands["zrangebyscore"]).To(atMost(20))
		Expect(client.ZCard(ctx, "line").Val()).To(Equal(int64(4)))
	})

	It("a release removes about 10,000 dead waiters at most", func(ctx SpecContext) {
		all := []string{"gone"}
		for i := range 5 {
			all = append(all, fmt.Sprint("line ", i))
			fillLine(ctx, client, all[i+1], "dead", 4000, dead)
			fillLine(ctx, client, all[i+1], fmt.Sprint("live-", i), 1, 0)
		}
		_, commands := ran(ctx, "release", all, "t", 1)
		Expect(commands["zscore"]).To(atMost(10_010))
		Expect(commands["publish"]).To(Equal(2), "one for each line that was cleared")
		Expect(client.ZCard(ctx, all[1]).Val()).To(Equal(int64(2)))
		Expect(client.ZCard(ctx, all[5]).Val()).To(BeNumerically(">=", 8000))
	})

	It("a search for a circle looks at 10,000 waiters at most", func(ctx SpecContext) {
		fillLine(ctx, client, "line", "silent", 12_000, silent)
		fillLine(ctx, client, "next", "silent", 12_000, silent)
		reply, commands := ran(ctx, "inspect", []string{"a", "b", "line", "note", "next", "n2"}, 2, 0, "", 1000)
		Expect(reply.([]any)[2]).To(Equal(int64(12_000)), "an Inspect counts all")
		Expect(commands["zrangebyscore"]).To(Equal(16))
		reply, commands = ran(ctx, "inspect", []string{"a", "b", "line", "note", "next", "n2"}, 2, 0, "", 1000, 1<<52)
		Expect(reply.([]any)[2]).To(Equal(int64(10_000)))
		Expect(reply.([]any)[8]).To(BeZero())
		Expect(commands["zrangebyscore"]).To(Equal(7))
	})

	It("an inspect reads each mark and each entry once", func(ctx SpecContext) {
		fillLine(ctx, client, "line", "dead", 5000, dead)
		first := fillLine(ctx, client, "line", "live", 2, 0)
		reply, commands := ran(ctx, "inspect", []string{"gone", "line", "note"}, 1)
		Expect(reply).To(Equal(spec.List{nil, int64(-2), int64(2), first, spec.List{}, ""}))
		Expect(commands["zscore"]).To(atMost(1))
		Expect(commands["zrangebyscore"]).To(atMost(4), "one for all marks, and 2,000 entries each")
		Expect(client.ZCard(ctx, "line").Val()).To(Equal(int64(10_004)), "it changes nothing")

		fillLine(ctx, client, "other", "dead", 2, dead)
		first = fillLine(ctx, client, "other", "live", 5000, 0)
		reply, commands = ran(ctx, "inspect", []string{"gone", "other", "note"}, 1)
		Expect(reply).To(Equal(spec.List{nil, int64(-2), int64(5000), first, spec.List{}, ""}))
		Expect(commands["zscore"]).To(atMost(1))
		Expect(commands["zrangebyscore"]).To(atMost(4))
	})

	It("a beat runs four commands for each line, and six if it makes the lines last", func(ctx SpecContext) {
		const lines = 100
		keys := make([]string, 2*lines)
		for i := range lines {
			keys[i], keys[lines+i] = strconv.Itoa(i), fmt.Sprint("line ", i)
			fillLine(ctx, client, keys[lines+i], "box", 1, silent)
			fillLine(ctx, client, keys[lines+i], "other", 40, silent)
		}
		for prolong, each := range []int{4, 6} {
			_, commands := ran(ctx, "beat", keys, "box-0", 3, "1", prolong)
			total := 0
			for command, n := range commands {
				if command != "eval" && command != "config" {
					total += n
				}
			}
			Expect(commands["zadd"]).To(Equal(lines))
			Expect(total).To(Equal(each*lines+1), "TIME, and %v", commands)
		}
	})

	It("a beat removes about 10,000 dead waiters at most", func(ctx SpecContext) {
		keys := make([]string, 10)
		for i := range 5 {
			keys[i], keys[5+i] = strconv.Itoa(i), fmt.Sprint("line ", i)
			fillLine(ctx, client, keys[5+i], "dead", 4000, dead)
			fillLine(ctx, client, keys[5+i], "box", 1, 0)
		}
		_, commands := ran(ctx, "beat", keys, "box-0", 3, "1", "0")
		Expect(commands["zscore"]).To(atMost(10_010))
		Expect(client.ZCard(ctx, keys[5]).Val()).To(Equal(int64(2)))
		Expect(client.ZCard(ctx, keys[9]).Val()).To(BeNumerically(">=", 8000))
	})
})
