package line_test

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

// lineControl takes one rule away. Then some history must differ from the model, or lose a waiter.
type lineControl struct {
	rule     string
	script   string // where the text stands; "" for all that have it
	old, new string // old stands there once
	deaf     string // what clients do not heed: "made", "beats" or "messages"; "" for a rule of the scripts
}

// These rules have no control, because histories of this kind do not show them: that a release asks with NUMSUB whether
// anybody listens before it hands keys over, for which handoff_replica_test.go needs a replica; that first passes over no more
// waiters than most says, that a step back renews no mark that has ended long ago, and what is done about an ACL, for which
// package script has specs.
var lineControls = []lineControl{
	// line.lua
	{
		rule: "who removes a dead waiter removes the mark of its inbox",
		old:  "= next.entry, '~' .. next.inbox", new: "= next.entry, next.entry",
	},
	{rule: "a line without entries is deleted", old: "pcall('DEL', line)", new: ""},
	{
		rule: "a deadline further away than the life and a second is none",
		old:  " and waiter.left <= waiter.life + 1000", new: "",
	},
	{rule: "each line has marks of its own", old: "if marked ~= line then", new: "if not marked then"},
	{rule: "a mark says whether the subscription is open", old: "+ state % 2)", new: "+ 1)"},
	{
		rule: "the next one is told how long a key is taken",
		old:  "if waiter and ttl < waiter.life / 3 then", new: "if false then",
	},
	{rule: "a line outlasts its marks", old: "math.floor(life * 7000 / 3)", new: "life * 2000"},

	// obtain.lua
	{
		rule: "a newcomer goes behind those in line", script: "obtain",
		old: "return not stood or other < ticket", new: "return other < ticket",
	},
	{rule: "who makes a mark removes the others of its inbox", old: "while made and leavers and budget > 0 do", new: "while false do"},
	{rule: "who makes a mark removes those that ended long ago", old: "if ended[1] then", new: "if false then"},
	{rule: "only if some may have left", old: "local leavers = state >= 2 and", new: "local leavers ="},
	{rule: "a try renews no mark that has ended", old: "or hasEnded(old)\n", new: "\n"},
	{rule: "a tie of tickets", script: "obtain", old: " or other == ticket and waiter.entry < entry", new: ""},
	{
		rule: "who removes dead waiters tells the next one", script: "obtain",
		old: "not removed or tell(waiter, '')", new: "true",
	},
	{
		rule: "a position writes the mark", script: "obtain",
		old: "call('ZADD', line, mark.score, mark.member)", new: "call('ZADD', line, '-1', mark.member)",
	},
	{rule: "a waiter is live if one of its lines says so", old: " or not waiter.live and waiter.line ~= line", new: ""},
	{
		rule: "who makes a mark says so", script: "obtain",
		old: "local reply = { -1, wait, ticket, now, made }", new: "local reply = { -1, wait, ticket, now, {} }",
	},
	{rule: "who makes a mark tells the inbox", script: "obtain", old: "\tannounce(id, inbox, made)\n", new: "\n"},
	{
		rule: "who makes a mark makes the line last", script: "obtain",
		old: "least = (made or -old % 4096", new: "least = (-(tonumber(old) or -4095) % 4096",
	},
	{
		rule: "who makes the life of a mark longer makes the line last", script: "obtain",
		old: "least = (made or -old % 4096 < mark.life * 2)", new: "least = made",
	},
	{
		rule: "a try makes a line last that would end before the mark", script: "obtain",
		old: "mark.life * 1000 * 4 / 3", new: "0",
	},
	{
		rule: "who is behind waits for a message or a beat", script: "obtain",
		old: "if not ahead or shared and", new: "if true or shared and",
	},
	{rule: "who is granted its keys leaves its lines", script: "obtain", old: "call('ZREM', KEYS[i], entry)", new: ""},

	// release.lua
	{
		rule: "late waiters are only woken", script: "release",
		old: " or late(waiter) or isClosed() then", new: " or isClosed() then",
	},
	{
		rule: "only deleted keys are handed over", script: "release",
		old: "if not deleted[indices[i] - lines + 1] then", new: "if false then",
	},
	{
		rule: "who is handed its keys leaves its lines", script: "release",
		old: "call('ZREM', KEYS[indices[i]], waiter.entry)", new: "",
	},
	{
		rule: "those of an inbox that is gone stay if nobody else is there", script: "release",
		old: "\nspares = true\n", new: "\n",
	},
	{
		rule: "who finds that an inbox is gone serves the next one", script: "release",
		old: "or not tell(waiter, '') then", new: "or not tell(waiter, '') and false then",
	},
	{
		rule: "who leaves the front tells the next one", script: "release",
		old: " or call('ZRANGEBYSCORE', KEYS[i], 0, '+inf', 'LIMIT', 0, 1)[1] == leaver", new: "",
	},
	{
		rule: "a step back makes a mark", script: "release",
		old: "if enter(KEYS[i], mark, call('ZSCORE', KEYS[i], mark.member)) then", new: "if false then",
	},
	{
		rule: "a step back that makes a mark tells the inbox", script: "release",
		old: "if made[1] then\n\tannounce(stepper", new: "if false then\n\tannounce(stepper",
	},
	{rule: "a waiter that steps back is not served", script: "release", old: "waiter.id ~= stepper and ", new: ""},

	// beat.lua
	{
		rule: "a beat makes no mark", script: "beat",
		old: "elseif type(old) ~= 'string' or ended then", new: "elseif type(old) ~= 'string' and call('ZADD', line, mark.score, mark.member) == 9 then",
	},
	{
		rule: "a beat renews the mark", script: "beat",
		old: "and call('ZADD', line, mark.score, mark.member) or old", new: "or old",
	},
	{rule: "a beat says which marks are missing", script: "beat", old: "missing[#missing + 1] = i", new: ""},
	{rule: "a beat renews no mark that has ended", script: "beat", old: "and hasEnded(old)", new: "and false"},
	{rule: "each third beat makes lines last", script: "beat", old: "if ARGV[4] == '1' and", new: "if false and"},
	{
		rule: "a beat removes those who have left", script: "beat",
		old: "left = call('ZREM', line, waiter.entry) == 1", new: "left = false",
	},
	{
		rule: "a beat tells the next of another inbox", script: "beat",
		old: "waiter.inbox == inbox or tell(waiter, ''))", new: "true)",
	},
	{
		rule: "a beat says when the first mark ends of another inbox", script: "beat",
		old: "(silent < 0 or waiter.left < silent) and waiter.left or silent", new: "waiter.left",
	},
	{
		rule: "a beat names those whose keys are free", script: "beat",
		old: "if left ~= -1 and left < life * 1000 / 3 then", new: "if true then",
	},
	{
		rule: "a beat names those whose keys are free soon", script: "beat",
		old: "if left ~= -1 and left < life * 1000 / 3 then", new: "if left == -2 then",
	},
	{rule: "a beat says when the last key is free", script: "beat", old: "math.max(at.ms, left)", new: "left"},
	{rule: "a beat says how many listen", script: "beat", old: "tonumber(listeners[2]) or -1", new: "1"},

	// the clients
	{rule: "a waiter comes back if its entry may be missing", deaf: "made"},
	{rule: "a waiter tries if a beat says that its keys are free", deaf: "beats"},
	{rule: "a waiter tries if a message says so", deaf: "messages"},
}

var _ = spec.DescribeOn(spec.InMemory, "Without a rule, random lines", func(on *spec.Redis) {
	It("differ from the model", Label(spec.Random), func(ctx SpecContext) {
		controls := slices.Clone(lineControls)
		rand.Shuffle(len(controls), func(i, j int) { controls[i], controls[j] = controls[j], controls[i] })
		for _, c := range controls[:min(spec.Schedules(16), len(controls))] {
			scripts, found, seed := c.scripts(), false, rand.Uint64()
			for n := uint64(0); n < 300 && !found; n++ {
				problem, _ := playLines(ctx, on, seed+n, scripts, c.deaf)
				found = problem != "" && problem != unclear
			}
			Expect(found).To(BeTrue(), "no history shows that this rule is missing: %s", c.rule)
		}
	})
})

// scripts returns the scripts without the rule.
func (c lineControl) scripts() map[string]string {
	scripts, found := lineScripts(), c.deaf != ""
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		if c.script != "" && c.script != name || c.deaf != "" {
			continue
		}
		if n := strings.Count(scripts[name], c.old); n == 1 {
			scripts[name] = strings.Replace(scripts[name], c.old, c.new, 1)
			found = true
		} else {
			Expect(n).To(Equal(0), "%s has several times %s", name, c.old)
		}
	}
	Expect(found).To(BeTrue(), fmt.Sprintf("no script has %s", c.old))
	return scripts
}
