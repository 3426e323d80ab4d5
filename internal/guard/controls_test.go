package guard_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/history/check"
	"github.com/redislock/redislock/internal/overlay"
)

// A control switches a rule of the guard off: by edits of the sources, or by what the schedule does wrong. Then the schedules
// of a kind must break a promise.
type control struct {
	name  string
	kind  string
	check string // which check must find it
	edits []overlay.Edit
	wrong wrong
	limit int // of schedules
}

var controls = []control{
	{
		name: "no guard", kind: "a server that forgets", check: check.Exclusion, limit: 20,
		edits: []overlay.Edit{{File: "internal/script/guard.go", Old: "return g.MaxTTL > 0", New: "return false"}},
	},
	{
		name: "one client without guard", kind: "long locks", check: check.Exclusion, limit: 50,
		wrong: wrong{noGuard: true},
	},
	{
		name: "one client above maxTTL", kind: "long locks", check: check.Exclusion, limit: 100,
		wrong: wrong{overlong: true},
		edits: []overlay.Edit{{File: "internal/argument/argument.go", Old: "if maxTTL > 0 && ttl > maxTTL {", New: "if false {"}},
	},
	{
		name: "half the grace", kind: "long locks", check: check.Exclusion, limit: 50,
		edits: []overlay.Edit{{
			File: "guard.lua", Old: "opens = now + longest -- a new term",
			New: "opens = now + math.floor(longest / 2) -- a new term",
		}},
	},
	{
		name: "no time for a deposed master", kind: "a master that goes on", check: check.Exclusion, limit: 60,
		wrong: wrong{noTime: true},
	},
	{
		name: "renewals count at once", kind: "a master that goes on", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{
			File: "guard.lua", Old: "return closed, id, math.max(0, ", New: "return closed, id, math.min(0, ",
		}},
	},
	{
		name: "hand-over while closed", kind: "releases that arrive again", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{File: "release.lua", Old: "or late(waiter) or isClosed() then", New: "or late(waiter) then"}},
	},
	{
		name: "own keys obtained while closed", kind: "tokens that are used again", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{
			File: "obtain.lua", Old: "	elseif closed > 0 and not ARGV[6] then",
			New: "	elseif closed > 0 and #KEYS < 4 and redis.call('GET', KEYS[1]) == token then\n\t\tclosed = 0\n" +
				"	elseif closed > 0 and not ARGV[6] then",
		}},
	},
	{
		name: "run_id as the identity", kind: "the old master again", check: check.Exclusion, limit: 60,
		wrong: wrong{sameRun: true},
	},
	{
		name: "a closed server of a quorum grants", kind: "a quorum that forgets", check: check.Exclusion, limit: 50,
		edits: []overlay.Edit{
			{
				File: "obtain.lua", Old: "	closed, term = guard()\n",
				New: "	closed, term = guard()\n\tclosed = type(closed) == 'table' and closed or 0\n",
			},
			{
				File: "obtain_each.lua", Old: "	closed, term = guard()\n",
				New: "	closed, term = guard()\n\tclosed = type(closed) == 'table' and closed or 0\n",
			},
		},
	},
	{
		name: "what has lapsed comes back", kind: "locks that lapse", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{
			{File: "internal/place/refresh.go", Old: "(h.isDoubtful() || h.Place.IsGuarded())", New: "h.isDoubtful()"},
			{File: "internal/place/refresh.go", Old: "case h.Place.IsGuarded() && lease.Passed(h.Lease.Until()):", New: "case false:"},
			{File: "internal/place/valid.go", Old: "if p.IsGuarded() {", New: "if false {"},
			{File: "internal/place/renew.go", Old: "case h.Place.IsGuarded() && lease.Passed(before):", New: "case false:"},
		},
	},
	{
		name: "a release is not sent again", kind: "nothing stays behind", check: check.Leftover, limit: 50,
		edits: []overlay.Edit{{
			File: "internal/place/guard.go", Old: "if s == nil || len(s.underWay) == 0 && !s.late && !s.unheard {", New: "if true {",
		}},
	},
	{
		name: "a renewal takes another's keys", kind: "a replica that takes over", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{
			File: "refresh.lua", Old: "lost, taken = lost or {}, true\n\t\t\tlost[#lost + 1] = index",
			New: "lost, taken = lost or {}, closed == 0\n\t\t\tlost[#lost + 1] = closed > 0 and -index or index",
		}},
	},
	{
		name: "an attach while closed", kind: "releases that arrive again", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{File: "inspect.lua", Old: "if guard and ARGV[2] == '1' then", New: "if false then"}},
	},
}

// root is the top of the repository.
const root = "../.."

// edited is the variable that tells the test which rule was edited out of the sources that it was built with.
const edited = "REDISLOCK_TEST_EDITED"

// Each rule that is switched off breaks a promise. This takes a build for most of them, for which REDISLOCK_TEST_CONTROLS=1
// asks. Without it, TestControls only looks whether the texts of the edits still stand in the sources.
func TestControls(t *testing.T) {
	t.Parallel()
	built := os.Getenv(edited)
	for _, c := range controls {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			switch files, err := overlay.Apply(root, c.edits); {
			case built == c.name, built == "" && len(files) == 0 && os.Getenv("REDISLOCK_TEST_CONTROLS") != "":
				c.catch(t)
			case built != "":
				t.Skip("not the rule that was edited out")
			case err != nil:
				t.Error(err)
			case len(files) > 0 && os.Getenv("REDISLOCK_TEST_CONTROLS") != "":
				t.Log(c.rebuilt(t, files))
			}
		})
	}
}

// catch runs schedules until one breaks the promise.
func (c *control) catch(t *testing.T) {
	var k kind
	for _, k = range kinds {
		if k.name == c.kind {
			break
		}
	}
	k.without = c.wrong
	began, other := time.Now(), ""
	for run := range c.limit {
		seed := seedOf(rand.Uint64())
		problems, _ := play(t, k, seed)
		for _, problem := range problems {
			if strings.Contains(problem, ": "+c.check+": ") {
				t.Logf("%s: caught after %d schedules, %v; seed %d: %s", c.name, run+1, time.Since(began), seed, problem)
				return
			}
			other = problem
		}
	}
	t.Errorf("%s: %d schedules broke no promise of %s; something else: %s", c.name, c.limit, c.check, other)
}

var caught = regexp.MustCompile(`.*: caught after .*`)

// rebuilt builds this test from the edited sources, runs the control with it, and returns what caught it.
func (c *control) rebuilt(t *testing.T, files map[string]string) string {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := overlay.Write(top, t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	run := "-run=^TestControls$/^" + strings.ReplaceAll(c.name, " ", "-") + "$"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-v", "-overlay="+replaced, run, ".")
	cmd.Env = append(os.Environ(), fmt.Sprint(edited, "=", c.name))
	output, err := cmd.CombinedOutput()
	line := caught.Find(output)
	if err != nil || line == nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return string(line)
}
