package redislock

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"
)

// processInfo is what ProcessMetadata reports. The JSON has the fields in this order, most useful first.
type processInfo struct {
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
}

var (
	processStart = time.Now().UTC().Truncate(time.Second)
	thisProcess  = sync.OnceValue(func() processInfo {
		info := processInfo{PID: os.Getpid(), Program: filepath.Base(os.Args[0]), Started: processStart}
		info.Host, _ = os.Hostname() // a process without a host name still has a pid
		if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "(devel)" {
			info.Version = build.Main.Version
		}
		return info
	})
)

// ProcessMetadata describes this process as one line of JSON, for [Options.Metadata]: host, pid, program, version (of
// the main module, if known), started (the start of the process) and now (the time of the call), both in UTC. It does no
// I/O after its first call and is safe for concurrent use.
//
//	{"host":"api-3","pid":4121,"program":"orders","version":"v1.4.2","started":"2026-03-01T04:10:00Z","now":"…"}
func ProcessMetadata() string {
	info := thisProcess()
	info.Now = time.Now().UTC().Truncate(time.Millisecond)
	text, _ := json.Marshal(info) // plain strings, numbers and times: cannot fail
	return string(text)
}
