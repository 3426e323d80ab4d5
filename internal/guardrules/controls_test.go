package guardrules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/internal/testing/overlay"
)

// A control switches a rule of the guard off: by edits of the sources, or by what the schedule does wrong. Then the
// schedules of a kind must break a promise.
//
// One build has the edits of the Go sources of all controls. In them, off is the name of the control that runs. The edits of
// the scripts are made when it runs.
type control struct {
	name  string
	kind  string
	check string         // which check must find it
	edits []overlay.Edit // the texts are short, so that they survive most changes of the sources
	wrong wrong
	limit int // of schedules
}

// These controls are missing, because no schedule would show them:
//
//   - A quorum that counts only what a closed server says of keys that it has put back. The holder has sent those requests
//     while its lock was valid at that server, or else internal/majority ignores the answers. So it still breaks no
//     promise.
//   - A renewal that takes a key from another while the guard is closed (4b). An answer counts only while the lock is valid
//     (5). Until then, a key with another token is an old one, which the server had not forgotten but its holder has given
//     up, unless an Obtain or a renewal is executed very late. The keys that a lost lock puts back are deleted by its
//     Release.
var controls = []control{
	{
		name: "no guard", kind: "a server that forgets", check: check.Exclusion, limit: 20,
		edits: []overlay.Edit{{
			File: "internal/script/closure.go", Old: "return g.MaxTTL > 0", New: `return g.MaxTTL > 0 && off != "no guard"`,
		}},
	},
	{
		name: "one client without guard", kind: "long locks", check: check.Exclusion, limit: 50,
		wrong: wrong{noGuard: true},
	},
	{
		name: "one client above maxTTL", kind: "long locks", check: check.Exclusion, limit: 100,
		wrong: wrong{overlong: true},
		edits: []overlay.Edit{{
			File: "internal/argument/argument.go", Old: "&& ttl > maxTTL:",
			New: `&& ttl > maxTTL && off != "one client above maxTTL":`,
		}},
	},
	{
		name: "half the grace", kind: "long locks", check: check.Exclusion, limit: 50,
		edits: []overlay.Edit{{
			File: "internal/script/marker.lua",
			Old:  "opens = now + longest -- a new term", New: "opens = now + math.floor(longest / 2) --",
		}},
	},
	{
		name: "no time for a deposed master", kind: "a master that goes on", check: check.Exclusion, limit: 60,
		wrong: wrong{noTime: true},
	},
	{
		name: "renewals count at once", kind: "a master that goes on", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{
			File: "internal/script/marker.lua", Old: "return closed, id, math.max(", New: "return closed, id, math.min(",
		}},
	},
	{
		name: "hand-over while closed", kind: "releases that arrive again", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{File: "release.lua", Old: " or isClosed() then", New: " then"}},
	},
	{
		name: "own keys obtained while closed", kind: "tokens that are used again", check: check.Exclusion, limit: 150,
		edits: []overlay.Edit{{
			File: "obtain.lua", Old: "	elseif closed > 0 and not ARGV[7] then",
			New: "	elseif closed > 0 and #KEYS < 4 and redis.call('GET', KEYS[1]) == ARGV[1] then\n\t\tclosed = 0\n" +
				"	elseif closed > 0 and not ARGV[7] then",
		}},
	},
	{
		name: "run_id as the identity", kind: "the old master again", check: check.Exclusion, limit: 60,
		wrong: wrong{sameRun: true},
	},
	{ // stands for a quorum that counts the answers of closed servers as it counts those of others
		name: "a closed server of a quorum grants", kind: "a quorum that forgets", check: check.Exclusion, limit: 50,
		edits: []overlay.Edit{
			{
				File: "obtain.lua", Old: "	closed, term = guard()\n",
				New: "	closed, term = guard()\n\tclosed = type(closed) == 'table' and closed or 0\n",
			},
			{
				File: "internal/script/obtain_each.lua", Old: "	closed, term = guard()\n",
				New: "	closed, term = guard()\n\tclosed = type(closed) == 'table' and closed or 0\n",
			},
		},
	},
	{
		name: "what has lapsed comes back", kind: "locks that lapse", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{
			{
				File: "internal/place/refresh.go", Old: "(l.IsDoubtful() || l.Place.IsGuarded()) &&",
				New: `(l.IsDoubtful() || l.Place.IsGuarded() && off != "what has lapsed comes back") &&`,
			},
			{
				File: "internal/place/refresh.go", Old: "case l.Place.IsGuarded() &&",
				New: `case l.Place.IsGuarded() && off != "what has lapsed comes back" &&`,
			},
			{
				File: "internal/place/renewal.go", Old: "case l.Place.IsGuarded() &&",
				New: `case l.Place.IsGuarded() && off != "what has lapsed comes back" &&`,
			},
			{
				File: "internal/place/valid.go", Old: "if p.IsGuarded() {",
				New: `if p.IsGuarded() && off != "what has lapsed comes back" {`,
			},
		},
	},
	{
		name: "a release is not sent again", kind: "nothing stays behind", check: check.Leftover, limit: 50,
		edits: []overlay.Edit{
			{
				File: "internal/place/hold.go", Old: "return !h.Place.IsGuarded() ||",
				New: `return !h.Place.IsGuarded() || off == "a release is not sent again" ||`,
			},
			{
				File: "internal/place/hold.go", Old: "	if !h.Place.IsGuarded() {",
				New: `	if !h.Place.IsGuarded() || off == "a release is not sent again" {`,
			},
		},
	},
	{
		name: "an attach while closed", kind: "releases that arrive again", check: check.Exclusion, limit: 60,
		edits: []overlay.Edit{{
			File: "internal/script/inspect.lua", Old: "if guard and ARGV[2] == '1' then", New: "if false then",
		}},
	},
}

// root is the top of the repository.
const root = "../.."

// These variables tell the test, once it is built from the edited sources, which control runs, and its scripts.
const (
	edited  = "REDISLOCK_TEST_EDITED"
	scripts = "REDISLOCK_TEST_SCRIPTS"
)

// Each rule that is switched off breaks a promise. This takes a build, for which REDISLOCK_TEST_CONTROLS=1 asks. Without it,
// TestControls only looks whether the texts of the edits still stand in the sources.
func TestControls(t *testing.T) {
	t.Parallel()
	asked, built := os.Getenv("REDISLOCK_TEST_CONTROLS") != "", os.Getenv(edited)
	build := sync.OnceValues(func() (string, error) { return buildEdited(t.Context(), t.TempDir()) })
	if _, err := editedGo(); err != nil && built == "" {
		t.Error(err)
	}
	for _, c := range controls {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			switch _, err := overlay.Apply(root, c.edits); {
			case built == c.name, built == "" && asked && len(c.edits) == 0:
				c.catch(t)
			case built != "":
				t.Skip("not the control that runs")
			case err != nil:
				t.Error(err)
			case asked:
				binary, err := build()
				if err != nil {
					t.Fatal(err)
				}
				c.run(t, binary)
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

// editedGo returns the contents of the Go files with the edits of all controls, and with scripts that can be replaced.
func editedGo() (map[string]string, error) {
	edits := []overlay.Edit{
		{File: "scripts.go", Old: "_ \"embed\" //", New: "_ \"embed\"\n\t\"encoding/json\"\n\t\"os\" //"},
		{
			File: "scripts.go", Old: "var scripts = script.New(sources, script.Guard{})",
			New: fmt.Sprintf("var scripts = func() *script.Scripts {\n\t_ = json.Unmarshal([]byte(os.Getenv(%q)), &sources)\n"+
				"\treturn script.New(sources, script.Guard{})\n}()", scripts),
		},
	}
	rooms := map[string]bool{}
	for _, c := range controls {
		for _, e := range c.edits {
			if path.Ext(e.File) == ".go" {
				edits = append(edits, e)
				rooms[path.Dir(e.File)] = true
			}
		}
	}
	files, err := overlay.Apply(root, edits)
	if err != nil {
		return nil, err
	}
	for room := range rooms {
		files[room+"/off.go"] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar off = os.Getenv(%q)\n", path.Base(room), edited)
	}
	files["internal/script/given.go"] = fmt.Sprintf(given, scripts)
	return files, nil
}

// buildEdited builds this test into the directory dir, from the edited Go files.
func buildEdited(ctx context.Context, dir string) (binary string, err error) {
	files, err := editedGo()
	if err != nil {
		return "", err
	}
	top, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replaced, err := overlay.Write(top, dir, files)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "guardrules.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+replaced, "-o="+binary, ".")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return binary, nil
}

// sourceFields are the scripts that controls edit, by the names under which editedGo looks for their texts: a field of
// script.Sources, or of the struct in given.
var sourceFields = map[string]string{
	"obtain.lua": "Obtain", "release.lua": "Release", "internal/script/marker.lua": "Guard",
	"internal/script/inspect.lua": "Inspect", "internal/script/obtain_each.lua": "ObtainEach",
}

// given is a file of package script that replaces the texts that the package embeds itself.
const given = `package script

import (
	"encoding/json"
	"os"
)

func init() {
	_ = json.Unmarshal([]byte(os.Getenv(%q)), &struct{ Guard, Inspect, ObtainEach *string }{
		&guardSource, &inspectSource, &obtainEachSource,
	})
}
`

var caught = regexp.MustCompile(`.*: caught after .*`)

// run runs the control with the test that was built from edited sources.
func (c *control) run(t *testing.T, binary string) {
	files, err := overlay.Apply(root, c.edits)
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for name, text := range files {
		if path.Ext(name) == ".lua" {
			sources[sourceFields[name]] = text
		}
	}
	texts, err := json.Marshal(sources)
	if err != nil {
		t.Fatal(err)
	}
	run := "-test.run=^TestControls$/^" + strings.ReplaceAll(c.name, " ", "-") + "$"
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", run)
	cmd.Env = append(os.Environ(), edited+"="+c.name, scripts+"="+string(texts))
	output, err := cmd.CombinedOutput()
	line := caught.Find(output)
	if err != nil || line == nil {
		t.Fatalf("%v\n%s", err, output)
	}
	t.Log(string(line))
}
