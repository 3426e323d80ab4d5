package script

import (
	_ "embed" // for the scripts
	"strings"
)

// Sources are the texts of the scripts that stand at the top of the repository. Files there are out of reach of a go:embed
// in this directory, so the root embeds them, and passes them to [New].
type Sources struct{ Obtain, Refresh, Release, PTTL string }

// The texts of all other scripts.
var (
	//go:embed obtain_each.lua
	obtainEachSource string
	//go:embed release_each.lua
	releaseEachSource string
	//go:embed fence.lua
	fenceSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed blocker.lua
	blockerSource string
	//go:embed waiters.lua
	waitersSource string
	//go:embed beat.lua
	beatSource string

	//go:embed line.lua
	lineSource string // the rules of the line, which obtain, release and beat include
	//go:embed shared.lua
	sharedSource string // the rules of keys that several may hold, which obtain, release, refresh and pttl include
	//go:embed note.lua
	noteSource string // what holders wait for themselves, which inspect and blocker include
	//go:embed marker.lua
	guardSource string // the check of a guard, which all scripts include that obey one
)

// complete returns the text of a script with the texts that it includes. Without a guard, it includes no check.
func complete(source string, guard Guard) string {
	check := ""
	if guard.IsSet() {
		check = guardSource
	}
	source = strings.Replace(source, "-- include line\n", lineSource, 1)
	source = strings.Replace(source, "-- include shared\n", sharedSource, 1)
	source = strings.Replace(source, "-- include note\n", noteSource, 1)
	return strings.Replace(source, "-- include marker\n", check, 1)
}
