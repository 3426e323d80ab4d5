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

// guarded has the scripts of Clients with a guard. Clients with the same guard have the same scripts, so their calls share
// pipelines and joint scripts. A program has few different guards.
var guarded struct {
	mu      sync.Mutex // protects byGuard
	byGuard map[script.Guard]*script.Scripts
}

// scriptsWith returns the scripts with this guard.
func scriptsWith(guard script.Guard) *script.Scripts {
	if !guard.IsSet() {
		return scripts
	}
	guarded.mu.Lock()
	defer guarded.mu.Unlock()
	all, found := guarded.byGuard[guard]
	if !found {
		if guarded.byGuard == nil {
			guarded.byGuard = map[script.Guard]*script.Scripts{}
		}
		all = script.New(sources, guard)
		guarded.byGuard[guard] = all
	}
	return all
}
