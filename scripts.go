package redislock

import (
	_ "embed" // for the scripts
	"sync"

	"github.com/redislock/redislock/internal/script"
)

// The scripts of a lock's life. Package script has the others, and makes calls of all of them.
var (
	//go:embed obtain.lua
	obtainSource string
	//go:embed refresh.lua
	refreshSource string
	//go:embed release.lua
	releaseSource string
	//go:embed pttl.lua
	pttlSource string
)

var sources = script.Sources{Obtain: obtainSource, Refresh: refreshSource, Release: releaseSource, PTTL: pttlSource}

// scripts are those of Clients without a guard.
var scripts = script.New(sources, script.Guard{})

// guarded has the scripts of Clients with a guard: from script.Guard to *script.Scripts. Clients with the same guard have
// the same scripts, so their calls share pipelines and joint scripts. A program has few different guards.
var guarded sync.Map

// scriptsWith returns the scripts with this guard.
func scriptsWith(guard script.Guard) *script.Scripts {
	if !guard.IsSet() {
		return scripts
	}
	all, found := guarded.Load(guard)
	if !found {
		all, _ = guarded.LoadOrStore(guard, script.New(sources, guard))
	}
	return all.(*script.Scripts)
}
