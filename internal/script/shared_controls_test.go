package script_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redislock/redislock/internal/testing/spec"
)

// sharedControl takes one rule away. Then the checker must find something in some history.
type sharedControl struct {
	rule   string
	script string   // where the text stands; "" for all that have it
	edits  []string // pairs of an old text, which stands there once, and a new one
	rare   bool     // it takes dozens of histories, so a short run leaves it out
}

// purge is what removes ended holds. The scripts are right without it, but it hides that another rule is missing.
var purge = []string{"'0', today, 'LIMIT', 0, 1000", "'0', today, 'LIMIT', 0, 0"}

// These rules have no control, because a beat makes up for them within an interval, or because histories show them too seldom:
// that the key is freed when no hold is left, which only the hand-over shows; that a sharer behind others, and who is refused by a
// holder, try when a hold ends; that the first one behind a leaver is told even if it does not fit; whom a leaver with keys
// serves; that wake stops at another limit, and goes on behind an inbox that is gone; that a beat which removes somebody tells
// all behind; that a dead waiter takes no place, and that who removes it in conflict tells those behind it.
var sharedControls = []sharedControl{
	// shared.lua
	{rule: "the limits of other holders count", edits: []string{"math.min(shares.limit[i], seen.least, seen.own)", "shares.limit[i]"}},
	{rule: "my own limit counts", edits: []string{"math.min(shares.limit[i], seen.least, seen.own)", "seen.least"}},
	{
		rule: "ended holds do not count", edits: append(slices.Clone(purge),
			"call('ZCOUNT', houses[i], '(' .. today, '+inf')", "call('ZCOUNT', houses[i], '0', '+inf')"),
	},
	{rule: "a refresh revives no hold that has ended", edits: []string{"ends and ends > now and ends or nil", "ends"}},
	{
		rule:  "the limit of a hold that has ended does not count",
		edits: append(slices.Clone(purge), "elseif holder and tonumber(call('ZSCORE', house, holder) or 0) > now then", "elseif holder then"),
	},
	{rule: "the key lasts as long as its last hold", edits: []string{"pcall('PEXPIREAT', KEYS[i], at)", "1"}},
	{rule: "the house lasts as long as its last hold", edits: []string{"pcall('PEXPIREAT', houses[i], at)", "1"}},
	{rule: "the house of a key that was deleted is emptied", edits: []string{"errorOf(pcall('DEL', houses[i])) -- what", "nil -- what"}},
	{rule: "a release settles the key", edits: []string{"\t\texpire(i, last)\n", "\n"}},
	{rule: "who leaves takes its limit along", edits: []string{"pcall('ZREM', house, holder, 'limit ' .. holder)", "pcall('ZREM', house, holder)"}},
	{rule: "who leaves takes its metadata along", edits: []string{"pcall('ZREMRANGEBYSCORE', house, score, score)", ""}},
	{rule: "new metadata replaces the old", edits: []string{"pcall('ZREM', house, unpack(old))", ""}},

	// line.lua
	{rule: "a limit stands in line", script: "obtain", edits: []string{"return limit == math.huge and '-' .. ticket or", "return"}},
	{rule: "forget removes third members", script: "release", edits: []string{"thirds[#thirds + 1] = '=' .. id", ""}},
	{rare: true, rule: "a purge of those who have left removes their third members", script: "obtain", edits: []string{"forget(line, out)\n\t\tend\n\t\tposition, budget", "end\n\t\tposition, budget"}},

	// obtain.lua
	{rule: "sharers wait behind those in line", script: "obtain", edits: []string{"shared and conflict(KEYS[lines + i - 1], i) or", "shared and false or"}},
	{rule: "a waiter with another limit blocks", script: "obtain", edits: []string{"live > room or limitOf(line, waiter) ~= limit", "live > room"}},
	{rule: "waiters with the same limit count as holders", script: "obtain", edits: []string{"live > room or", ""}},
	{rule: "one without a limit finds those with one", script: "obtain", edits: []string{"found = firstOther(line, ahead, size)", ""}},
	{rule: "who removes a dead waiter removes its mark", script: "obtain", edits: []string{"'=' .. waiter.id, '~' .. waiter.inbox", "'=' .. waiter.id, '=' .. waiter.id"}},
	{rule: "a dead waiter leaves no third member", script: "obtain", edits: []string{"waiter.entry, '=' .. waiter.id,", "waiter.entry, waiter.entry,"}},
	{rule: "who is granted leaves no third member", script: "obtain", edits: []string{"call('ZREM', KEYS[i], '=' .. id)", ""}},
	{
		rule: "a grant wakes the next two", script: "obtain",
		edits: []string{"wake(KEYS[i], (seen and seen.count or 0) + 1, math.min(seen and seen.least or limit, limit), 2, ahead)", ""},
	},
	{rule: "the smaller limit stays", script: "obtain", edits: []string{"math.min(limits[i], seen.own)", "math.huge"}},

	// release.lua
	{rule: "a release wakes all who fit", script: "release", edits: []string{"wake(KEYS[i], count, least, math.huge)", ""}},
	{rare: true, rule: "who leaves from the middle wakes those behind", script: "release", edits: []string{" or parts(i, waiter)", ""}},
	{rare: true, rule: "one without a limit may part others", script: "release", edits: []string{"not (own == math.huge and limit == own)", "limit ~= math.huge"}},
	{rare: true, rule: "a release tells the first when the last hold ends", script: "release", edits: []string{"tell(waiter, ' after ' .. ends)", ""}},
	{rule: "who steps back has its third member", script: "release", edits: []string{"call('ZADD', KEYS[i], shareScore(limit, ticket), '=' .. stepper)", ""}},
	{rule: "who leaves leaves no third member", script: "release", edits: []string{"forget(KEYS[i], { leaver })", ""}},
	{rule: "a release reports a hold that has ended", script: "release", edits: []string{"if not shares.endOf(index) then", "if false then"}},

	// refresh.lua and pttl.lua
	{rule: "a renewal brings no end forward", script: "refresh", edits: []string{"prolongs and ends[i] or 0", "0"}},
	{rule: "a refresh needs all holds", script: "refresh", edits: []string{"if not ends[index] then", "if false then"}},
	{rule: "pttl says when my own hold ends", script: "pttl", edits: []string{"ends and ends - shares.now or call('PTTL', KEYS[index])", "call('PTTL', KEYS[index])"}},

	// beat.lua
	{rule: "a beat that removes one who has left removes the third member", script: "beat", edits: []string{"forget(line, { waiter.entry })", ""}},
	{rare: true, rule: "a beat tells those behind one who is stuck", script: "beat", edits: []string{"if shares then -- the first", "if false then -- the first"}},
}

var _ = spec.DescribeOn(spec.InMemory, "Without a rule, random shared keys", func(on *spec.Redis) {
	It("break a promise", Label(spec.Random), func(ctx SpecContext) {
		for _, c := range sharedControls {
			c.scripts() // fails if one does not fit the scripts any more
		}
		controls := slices.DeleteFunc(slices.Clone(sharedControls), func(c sharedControl) bool { return c.rare && spec.Schedules(2) <= 2 })
		rand.Shuffle(len(controls), func(i, j int) { controls[i], controls[j] = controls[j], controls[i] })
		var missed []string
		for _, c := range controls[:min(spec.Schedules(2), len(controls))] {
			scripts, problem, seed, n := c.scripts(), "", rand.Uint64(), uint64(0)
			for ; n < 400 && problem == ""; n++ {
				problem = playShared(ctx, on, seed+n, scripts).problem
			}
			if AddReportEntry(c.rule, fmt.Sprintf("history %d, seed %d: %s", n, seed+n-1, problem), ReportEntryVisibilityFailureOrVerbose); problem == "" {
				missed = append(missed, c.rule)
			}
		}
		Expect(missed).To(BeEmpty(), "no history shows that these rules are missing")
	})

	It("keep all promises if only ended holds stay", Label(spec.Random), func(ctx SpecContext) {
		h := playShared(ctx, on, rand.Uint64(), sharedControl{rule: "purge", edits: purge}.scripts())
		Expect(h.problem).To(BeEmpty())
	})
})

// scripts returns the scripts without the rule.
func (c sharedControl) scripts() map[string]string {
	scripts := sharedScripts()
	for i := 0; i < len(c.edits); i += 2 {
		found := false
		for _, name := range slices.Sorted(maps.Keys(scripts)) {
			if c.script != "" && c.script != name {
				continue
			}
			if n := strings.Count(scripts[name], c.edits[i]); n > 0 {
				Expect(n).To(Equal(1), "%s: %s has several times %s", c.rule, name, c.edits[i])
				scripts[name] = strings.Replace(scripts[name], c.edits[i], c.edits[i+1], 1)
				found = true
			}
		}
		Expect(found).To(BeTrue(), "%s: no script has %s", c.rule, c.edits[i])
	}
	return scripts
}
