// Package plan makes plans of faults: what goes wrong, when, where and for how long. A seed repeats a plan. The package
// knows the names of faults, and not how to do them.
package plan

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind names a fault.
type Kind string

// Faults of a worker process.
const (
	StopWorker Kind = "stop-worker" // SIGSTOP, and SIGCONT afterwards
	KillWorker Kind = "kill-worker" // SIGKILL; another worker takes its place afterwards
)

// Faults of the network between one worker and the servers.
const (
	SwallowReplies Kind = "swallow-replies"
	DelayReplies   Kind = "delay-replies"
	CutReplies     Kind = "cut-replies"  // after some bytes
	CutRequests    Kind = "cut-requests" // after some bytes
	DelayRequests  Kind = "delay-requests"
	StrandRequests Kind = "strand-requests" // the connection is cut, and the server receives the request later all the same
	RepeatRequests Kind = "repeat-requests" // the server receives each twice
	RefuseLoading  Kind = "refuse-loading"  // the error LOADING instead of an execution
	BlackHole      Kind = "black-hole"
	Partition      Kind = "partition" // all connections are cut, and new ones refused
)

// Faults of a server.
const (
	PauseServer       Kind = "pause-server"
	RestartServer     Kind = "restart-server" // SIGKILL, and a restart with the data that it had saved
	FlushScripts      Kind = "flush-scripts"
	KillConnections   Kind = "kill-connections"
	KillSubscriptions Kind = "kill-subscriptions"
	FullMemory        Kind = "full-memory"
	ClockForward      Kind = "clock-forward"
	ClockBack         Kind = "clock-back"
	ClockDrift        Kind = "clock-drift" // almost 1 % too fast
)

// Faults of several servers.
const (
	ForgetServer Kind = "forget-server" // one of the independent servers is restarted without its data
	ForgetMany   Kind = "forget-many"   // a majority is restarted without its data, at once
	CrashMaster  Kind = "crash-master"  // a replica takes over, and may lack the last writes
	Failover     Kind = "failover"      // on request
	MigrateSlot  Kind = "migrate-slot"
)

// Faults of servers with a guard.
const (
	FlushAll      Kind = "flush-all"
	RestartEmpty  Kind = "restart-empty"  // SIGKILL, and a restart without data
	RestartOld    Kind = "restart-old"    // SIGKILL, and a restart with the data of some time ago
	WakeMaster    Kind = "wake-master"    // SIGSTOP, and SIGCONT when the replica has taken over
	IsolateMaster Kind = "isolate-master" // a replica takes over, and the old master and some workers do not hear of it
)

// Choice is a kind of fault, how often it is chosen, and how long it takes.
type Choice struct {
	Kind        Kind
	Weight      int
	Least, Most time.Duration
}

// Fault is one planned fault.
type Fault struct {
	At, For time.Duration // since the beginning of the round
	Kind    Kind
	Pick    int           // the target: an index, modulo the number of targets
	Delay   time.Duration // for faults that delay
	Times   int           // how many requests a fault of the network hits, at most
	Bytes   int           // how many bytes a cut lets through
}

// network are faults of the network, which every topology has. They hit one worker.
var network = []Choice{
	{SwallowReplies, 6, 200 * time.Millisecond, 1500 * time.Millisecond},
	{DelayReplies, 8, 200 * time.Millisecond, 1500 * time.Millisecond},
	{CutReplies, 8, 200 * time.Millisecond, 1500 * time.Millisecond},
	{CutRequests, 4, 200 * time.Millisecond, 1500 * time.Millisecond},
	{DelayRequests, 8, 200 * time.Millisecond, 1500 * time.Millisecond},
	{StrandRequests, 4, 200 * time.Millisecond, 1500 * time.Millisecond},
	{RepeatRequests, 6, 200 * time.Millisecond, 1500 * time.Millisecond},
	{RefuseLoading, 2, 50 * time.Millisecond, 500 * time.Millisecond},
	{BlackHole, 3, 300 * time.Millisecond, 2 * time.Second},
	{Partition, 3, 50 * time.Millisecond, 2 * time.Second},
	{StopWorker, 12, 50 * time.Millisecond, 4 * time.Second},
	{KillWorker, 6, 50 * time.Millisecond, 1500 * time.Millisecond},
}

// everywhere are faults of a single server.
var everywhere = []Choice{
	{PauseServer, 2, 50 * time.Millisecond, 1200 * time.Millisecond},
	{FlushScripts, 4, 0, 0},
	{KillConnections, 3, 0, 0},
	{KillSubscriptions, 3, 0, 0},
	{FullMemory, 1, 100 * time.Millisecond, time.Second},
}

// Clocks are faults for servers whose clocks can be moved.
var Clocks = []Choice{
	{ClockForward, 1, 0, 0},
	{ClockBack, 1, 0, 0},
	{ClockDrift, 6, 2 * time.Second, 8 * time.Second},
}

// Menu returns the faults of a topology, or nil for an unknown topology.
func Menu(topology string) []Choice {
	ms, s := time.Millisecond, time.Second
	own := map[string][]Choice{
		"memory+guard": {{FlushAll, 3, 0, 0}, {RestartEmpty, 3, 50 * ms, s}, {RestartOld, 9, 50 * ms, s}},
		"sentinel+guard": {
			{FlushAll, 2, 0, 0},
			{RestartEmpty, 2, 50 * ms, 500 * ms},
			{CrashMaster, 3, 200 * ms, 1500 * ms},
			{Failover, 2, 0, 0},
			{WakeMaster, 3, 0, 300 * ms},
			{IsolateMaster, 8, 1200 * ms, 2400 * ms},
		},
		"quorum+guard": {
			{RestartServer, 2, 50 * ms, 1500 * ms},
			{FlushAll, 4, 0, 0},
			{ForgetServer, 6, 50 * ms, 800 * ms},
			{RestartOld, 6, 50 * ms, s},
			{ForgetMany, 2, 50 * ms, 500 * ms},
		},
		"one":      {{RestartServer, 2, 50 * time.Millisecond, 1500 * time.Millisecond}},
		"memory":   {{RestartServer, 2, 50 * time.Millisecond, 1500 * time.Millisecond}},
		"sentinel": {{CrashMaster, 1, 0, 0}, {Failover, 1, 0, 0}},
		"cluster": {
			{CrashMaster, 1, 0, 0},
			{Failover, 2, 0, 0},
			{MigrateSlot, 4, 100 * time.Millisecond, 1500 * time.Millisecond},
		},
		"quorum": {
			{RestartServer, 2, 50 * time.Millisecond, 1500 * time.Millisecond},
			{ForgetServer, 12, 50 * time.Millisecond, 800 * time.Millisecond},
			{ForgetMany, 1, 50 * time.Millisecond, 500 * time.Millisecond},
		},
	}[topology]
	if own == nil {
		return nil
	}
	return slices.Concat(network, everywhere, own)
}

// Aimed returns the faults of the network with some others.
func Aimed(faults []Choice) []Choice { return slices.Concat(network, faults) }

// New returns the faults of a round, by time. They come at random times, pause apart on average, and each kind as often
// as its weight says. Faults may overlap. All have ended by the end of the round. In the third quarter none begins, so
// that promises that hold only without faults are tested as well.
func New(seed uint64, menu []Choice, length, pause time.Duration) []Fault {
	random := rand.New(rand.NewPCG(seed, 0x746f7274757265))
	total := 0
	for _, c := range menu {
		total += c.Weight
	}
	var faults []Fault
	for at := length / 30; ; {
		at += min(time.Duration(random.ExpFloat64()*float64(pause)), 5*pause)
		if at >= length/2 && at < length*3/4 {
			at += length / 4
		}
		if at >= length {
			return faults
		}
		n := random.IntN(total)
		i := slices.IndexFunc(menu, func(c Choice) bool { n -= c.Weight; return n < 0 })
		f := Fault{
			At: at, Kind: menu[i].Kind, For: menu[i].Least, Pick: random.IntN(1 << 20),
			Delay: 20*time.Millisecond + time.Duration(random.Int64N(int64(900*time.Millisecond))),
			Times: 1 + random.IntN(6), Bytes: random.IntN(12),
		}
		if random.IntN(3) == 0 { // in practice, most cuts let nothing through
			f.Bytes = 0
		}
		if most := menu[i].Most - menu[i].Least; most > 0 {
			f.For += time.Duration(random.Int64N(int64(most)))
		}
		if f.At+f.For > length {
			f.For = length - f.At
		}
		faults = append(faults, f)
	}
}

// Kinds returns the kinds of faults in a plan or a menu, sorted, each once.
func Kinds[T Fault | Choice](all []T) []Kind {
	var kinds []Kind
	for _, one := range all {
		switch one := any(one).(type) {
		case Fault:
			kinds = append(kinds, one.Kind)
		case Choice:
			kinds = append(kinds, one.Kind)
		}
	}
	slices.SortFunc(kinds, cmp.Compare[Kind])
	return slices.Compact(kinds)
}
