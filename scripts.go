package redislock

import (
	_ "embed" // for the scripts

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
)

var scripts = script.New(script.Sources{
	Obtain: obtainSource, ObtainEach: obtainEachSource, Release: releaseSource, ReleaseEach: releaseEachSource,
	Refresh: refreshSource, PTTL: pttlSource, Fence: fenceSource, Inspect: inspectSource, Blocker: blockerSource,
	Waiters: waitersSource, Line: lineSource,
})
