package redislock

import (
	_ "embed" // for the scripts
	"sync"

	"github.com/redislock/redislock/internal/script"
)

var (
	//go:embed obtain.lua
	obtainSource string
	//go:embed obtain_each.lua
	obtainEachSource string
	//go:embed refresh.lua
	refreshSource string
	//go:embed release.lua
	releaseSource string
	//go:embed release_each.lua
	releaseEachSource string
	//go:embed pttl.lua
	pttlSource string
	//go:embed fence.lua
	fenceSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed waiters.lua
	waitersSource string
	//go:embed blocker.lua
	blockerSource string
	//go:embed line.lua
	lineSource string
	//go:embed guard.lua
	guardSource string
)

var sources = script.Sources{
	Obtain: obtainSource, ObtainEach: obtainEachSource, Release: releaseSource, ReleaseEach: releaseEachSource,
	Refresh: refreshSource, PTTL: pttlSource, Fence: fenceSource, Inspect: inspectSource, Blocker: blockerSource,
	Waiters: waitersSource, Line: lineSource, Guard: guardSource,
}

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
