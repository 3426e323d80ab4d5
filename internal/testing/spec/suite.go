package spec

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redislock/redislock/internal/testing/bubble"
	"github.com/redislock/redislock/internal/testing/race"
	"github.com/redislock/redislock/internal/testing/redistest"
	"github.com/redislock/redislock/internal/testing/shard"
	"github.com/redislock/redislock/internal/transport"
)

// suites are the suites of a package. Each of their processes has servers of its own.
var suites = shard.Suites{
	InMemory:  {Labels: InMemory, FakeTime: true},
	OnServer:  {Labels: sharing},
	"quorums": {Labels: OnServer + " && " + Quorums},
	"others":  {Labels: "!" + InMemory + " && !" + sharing + " && !" + Quorums}, // own servers, or none
}

// pipelined are more suites, if REDISLOCK_TEST_PIPELINED is 1: specs that run once more, with every call in a shared
// pipeline.
var pipelined = shard.Suites{
	"pipelined":         {Labels: InMemory, FakeTime: true},
	"pipelined-servers": {Labels: Pipelines + " && !" + InMemory},
}

// Pipelined reports whether every call of this process goes through a shared pipeline.
var Pipelined = func() bool { _, is := pipelined[shard.Name()]; return is }()

// OtherClient says that calls of this process go through another client than go-redis. It is set before any spec runs.
var OtherClient bool

// AddHook adds a hook to a client, or skips the spec if the hook would see no call.
func AddHook(client *redis.Client, hook redis.Hook) {
	GinkgoHelper()
	if OtherClient {
		Skip("hooks are a matter of go-redis")
	}
	client.AddHook(hook)
}

// Through adds a suite: the specs that share one server run once more, through the client of Redis that instead puts in the
// place of those of go-redis.
func Through(name string, instead func()) {
	suites[name] = shard.Suite{Labels: sharing}
	if shard.Name() == name {
		instead()
	}
}

// elsewhere reports whether specs on that kind of Redis run in other processes, so that this one need not know them.
func elsewhere(kind string) bool {
	suite := shard.Name()
	return suite != "" && suites[suite].FakeTime != (kind == InMemory)
}

// namedServer names the server for the specs that are content with one, host:port. Without it, one is started.
const namedServer = "REDISLOCK_TEST_REDIS"

func init() {
	if os.Getenv("REDISLOCK_TEST_PIPELINED") == "1" {
		maps.Copy(suites, pipelined)
	}
	transport.AlwaysTogether = Pipelined
	logging.Disable() // go-redis logs what its errors say as well, which hides the failures in the output
}

// Main runs the tests of a package, for its TestMain. The specs may leave more garbage: otherwise a quarter of their CPU
// time would go into collecting what the Lua of miniredis leaves.
func Main(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
	}
	m.Run()
}

// Run runs the specs of a package, for its TestSpecs.
func Run(t *testing.T) {
	RegisterFailHandler(Fail)
	most := shard.Most
	if os.Getenv(namedServer) != "" {
		most = 1 // they empty the one server that they all use
	}
	suites.Run(t, most, runSuite)
}

// The report names each reason for which specs were skipped once, at the end.
var _ = ReportAfterSuite("what was left out", func(report Report) {
	left := map[string]int{}
	for _, spec := range report.SpecReports {
		if spec.State == types.SpecStateSkipped && spec.Failure.Message != "" && spec.Failure.Message != shard.Elsewhere {
			left[spec.Failure.Message]++
		}
	}
	for reason, specs := range left {
		fmt.Printf("left out: %d specs: %s\n", specs, reason)
	}
})

// runSuite runs the specs of a suite. Those on miniredis run on fake time, in a bubble of synctest: no time passes while
// anything is under way, and none is waited for when nothing is. Their connections are those of memnet.
func runSuite(t *testing.T, suite string, config types.SuiteConfig, reporter types.ReporterConfig) {
	if !suites[suite].FakeTime {
		SetDefaultEventuallyTimeout(5 * time.Second) // a second, by default, which a busy machine may need
		shard.RunSpecs(t, suite, config, reporter)
		return
	}
	config.Timeout = 24 * time.Hour // of fake time; the hour of ginkgo is soon over
	now := time.Now().Round(0)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // so that os/signal's own goroutine is not in the bubble
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // a bubble begins in the year 2000
		if !RunSpecs(t, suite, config, reporter) {
			os.Exit(1)
		}
		os.Exit(0) // ginkgo leaves a goroutine behind, and synctest would complain
	})
}

// Labels.
const (
	InMemory  = "miniredis"
	OnServer  = "redis-server"
	sharing   = "one server" // of a suite, which its specs on a real server share
	Pipelines = "pipelines"  // on a real server too, calls that share pipelines show more
	Random    = "random"     // random schedules
	Quorums   = "quorums"
)

// Bound returns how long something may take: fake where time is fake, which no other process uses up, and onServer on a
// real server, where a busy machine takes its share.
func Bound(kind string, fake, onServer time.Duration) time.Duration {
	if kind == InMemory {
		return fake
	}
	return onServer
}

// Schedules returns how many random schedules a test tries: n times REDISLOCK_TEST_SCHEDULES, or a quarter of that with
// -short or the race detector. With that, they take ten times as long, and each shows the same code to it.
func Schedules(n int) int {
	if times, err := strconv.Atoi(os.Getenv("REDISLOCK_TEST_SCHEDULES")); err == nil {
		n *= times
	}
	if testing.Short() || race.Enabled {
		return n / 4
	}
	return n
}

// Runs returns how many runs a random test makes: REDISLOCK_TEST_RUNS, or usual. It panics if that says no number above 0,
// because a test without a run would find nothing.
func Runs(usual int) int {
	text := os.Getenv("REDISLOCK_TEST_RUNS")
	if text == "" {
		return usual
	}
	runs, err := strconv.Atoi(text)
	if err != nil || runs < 1 {
		panic(fmt.Sprintf("REDISLOCK_TEST_RUNS is %q, and not a number of runs", text))
	}
	return runs
}

// CheckLeaks fails the spec if a goroutine that it started outlives it, and everything that it cleans up.
func CheckLeaks() {
	before := gleak.Goroutines()
	DeferCleanup(func() {
		shared := gleak.IgnoringInBacktrace("leash.(*Process).reap") // of a quorum's server that was started again
		Eventually(gleak.Goroutines).WithTimeout(5 * time.Second).ShouldNot(gleak.HaveLeaked(before, shared))
	})
}

// RequireServer skips the spec where there is no redis-server, or fails it where one is required.
func RequireServer() {
	GinkgoHelper()
	if err := redistest.Available(); err != nil {
		if os.Getenv("REDISLOCK_TEST_REQUIRE") == "1" {
			Fail(err.Error())
		}
		Skip(err.Error())
	}
}
