package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// fact is one line about the conditions of a run.
type fact struct{ name, value string }

// circumstances returns the machine and the versions of all parts, without anything that names the machine.
func (b *bench) circumstances(ctx context.Context) []fact {
	server := "redis-server " + b.serverVersion(ctx) + ", started by this program, without persistence"
	if b.target.own == nil {
		server = "redis-server " + b.serverVersion(ctx) + ", given by --redis"
	}
	facts := []fact{
		{"Processor", processor() + ", " + strconv.Itoa(runtime.NumCPU()) + " logical cores, GOMAXPROCS " +
			strconv.Itoa(runtime.GOMAXPROCS(0))},
		{"System", system()},
		{"Load before", load()},
		{"Server", server},
		{"Go", strings.TrimPrefix(runtime.Version(), "go")},
	}
	return append(facts, modules()...)
}

// serverVersion returns the version of Redis or of Valkey, which reports an old version of Redis as well.
func (b *bench) serverVersion(ctx context.Context) string {
	info := b.target.client.InfoMap(ctx, "server").Val()["Server"]
	if version := info["valkey_version"]; version != "" {
		return "(Valkey) " + version
	}
	return info["redis_version"]
}

// modules returns the versions of the compared libraries and of their Redis clients.
func modules() []fact {
	facts := []fact{{"github.com/redislock/redislock", "this checkout"}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return facts
	}
	for _, module := range info.Deps {
		switch module.Path {
		case "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9",
			"github.com/redis/rueidis":
			facts = append(facts, fact{module.Path, module.Version})
		}
	}
	return facts
}

// processor returns the model of the processor.
func processor() string {
	if runtime.GOOS == "darwin" {
		model, err := exec.Command("sysctl", "-n", "machdep.cpu.brand_string").Output()
		if err == nil {
			return strings.TrimSpace(string(model))
		}
	}
	return fileField("/proc/cpuinfo", "model name", ":")
}

// system returns the operating system, its distribution if it has one, and the architecture.
func system() string {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if name := fileField("/etc/os-release", "PRETTY_NAME", "="); name != unknown {
		return strings.Trim(name, `"`) + ", " + platform
	}
	return platform
}

// load returns how many processes wanted a processor in the minute before.
func load() string {
	average, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	minute, _, _ := strings.Cut(string(average), " ")
	return minute + " (average of a minute)"
}

const unknown = "unknown"

// fileField returns the value of the first line "name separator value" of a file.
func fileField(path, name, separator string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		before, value, found := strings.Cut(line, separator)
		if found && strings.TrimSpace(before) == name {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

// settings returns how each contestant is set up.
func (b *bench) settings() []fact {
	var facts []fact
	for _, l := range b.lockers {
		facts = append(facts, fact{l.name, l.settings})
	}
	for _, c := range oneServer.contenders() {
		facts = append(facts, fact{c.name + " (contended)", c.settings})
	}
	facts = append(facts,
		fact{thisLibrary + " (quorum)", "NewQuorum, nil options"}, fact{rawGoRedis + " (quorum)", rawQuorumSettings})
	for _, c := range quorum.contenders() {
		facts = append(facts, fact{c.name + " (quorum)", c.settings})
	}
	facts = append(facts, fact{thisLibrary + " (slots)", "Options.AcrossSlots"})
	for _, c := range cluster.contenders() {
		facts = append(facts, fact{c.name + " (slots)", c.settings})
	}
	return append(facts,
		fact{thisLibrary + " (kept)", "KeepAlive"},
		fact{overRueidis + " (kept)", "KeepAlive"},
		fact{"rueidislock (kept)", rueidislockSettings},
	)
}
