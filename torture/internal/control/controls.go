package control

import (
	"slices"
	"time"

	"github.com/redislock/redislock/internal/testing/history/check"
	"github.com/redislock/redislock/torture/internal/plan"
)

// goesBack makes a server lose the latest of its data again and again.
var goesBack = often(plan.RestartOld, 9, 300, 900)

// often returns a fault with its weight, and how many milliseconds it takes at least and at most.
func often(kind plan.Kind, weight, least, most int) []plan.Choice {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return []plan.Choice{{Kind: kind, Weight: weight, Least: ms(least), Most: ms(most)}}
}

// networkOnly leaves out the faults of servers, because each of them touches all workers.
var networkOnly = []plan.Choice{}

// All are the controls.
var All = []Control{
	{
		Name: "obtain-without-nx", Off: "a call that shares a script takes keys that another holds",
		Topology: "one", Checks: []string{check.Exclusion, check.Loss}, Scene: "burst",
		Edits: []Edit{{
			"internal/script/obtain_each.lua",
			"token or token .. ' ' .. metadata, 'NX', 'PX'", "token or token .. ' ' .. metadata, 'PX'",
		}},
	},
	{
		Name: "release-any-token", Off: "Release does not look at the token",
		Topology: "one", Checks: []string{check.Exclusion, check.Loss},
		Edits: []Edit{
			{
				"release.lua", "if #KEYS == 2 and not ARGV[2] and pcall('GET', KEYS[1]) == ARGV[1] then",
				"if #KEYS == 2 and not ARGV[2] and pcall('GET', KEYS[1]) then",
			},
			{
				"release.lua", "if stored and (stored == token or string.sub(stored, 1, #token + 1) == token .. ' ') then",
				"if stored then",
			},
			{
				"internal/script/release_each.lua",
				"if stored and (stored == token or string.sub(stored, 1, #token + 1) == token .. ' ') then",
				"if stored then",
			},
		},
	},
	{
		Name: "refresh-any-token", Off: "Refresh does not look at the token",
		Topology: "one", Checks: []string{check.Exclusion, check.Loss},
		Edits: []Edit{{
			"refresh.lua", "elseif not stored or stored ~= token and string.sub(stored, 1, #token + 1) ~= token .. ' ' then",
			"elseif not stored then",
		}},
	},
	{
		Name: "validity-from-the-reply", Off: "Until counts from the reply, and not from before the request",
		Topology: "one", Checks: []string{check.Exclusion, check.Lease, check.Loss},
		Edits: []Edit{{
			"internal/place/tries.go",
			"return t.grant(ctx, c.Sent, g.Fence, g.Taken)", "return t.grant(ctx, time.Now(), g.Fence, g.Taken)",
		}},
	},
	{
		Name: "no-margin", Off: "Until leaves no margin for a server's clock that runs faster",
		Topology: "one", Checks: []string{check.Exclusion, check.Lease, check.Loss},
		Aim:   often(plan.ClockDrift, 40, 2000, 8000),
		Scene: "outlive",
		Edits: []Edit{{
			"internal/lease/lease.go", "return sent.Add(ttl - ttl/100 - time.Millisecond)", "return sent.Add(ttl)",
		}},
	},
	{
		Name: "renewal-from-the-reply", Off: "a renewal counts from its reply, and not from before its request",
		Topology: "one", Checks: []string{check.Exclusion, check.Lease, check.Loss},
		Aim:   often(plan.DelayReplies, 120, 200, 1500),
		Scene: "keep",
		Edits: []Edit{{
			"internal/place/renewal.go",
			"next = l.Lease.Renewed(r.lease, r.Call.Sent)", "next = l.Lease.Renewed(r.lease, time.Now())",
		}},
	},
	{
		Name: "hand-off-from-the-message", Off: "a lock that was handed over counts from the arrival of the message",
		Topology: "one", Checks: []string{check.Exclusion, check.Lease, check.Loss},
		Aim:   often(plan.StopWorker, 1000, 100, 800),
		Scene: "queued",
		Edits: []Edit{{
			"internal/line/messages.go", "return from.sent.Add(max(passed, 0))", "_ = passed\n\treturn time.Now()",
		}},
	},
	{
		Name: "unanswered-refresh-forgotten", Off: "Until ignores that a Refresh without an answer may still shorten the ttl",
		Topology: "one", Checks: []string{check.Exclusion, check.Lease, check.Loss},
		Aim:   often(plan.StrandRequests, 240, 100, 500),
		Scene: "refreshes",
		Edits: []Edit{
			{"internal/lease/refreshes.go", "if f.unanswered > 0 {", "if false {"},
			{"internal/lease/refreshes.go", "ttl = min(ttl, other.cuts)", "_ = other"},
			{"internal/lease/refreshes.go", "if !other.abandoned || other.cuts < ttl ||", "if !other.abandoned ||"},
		},
	},
	{
		Name: "no-cleanup", Off: "nothing is released after an abandoned obtain",
		Topology: "one", Checks: []string{check.Leftover}, Rarer: 20, Aim: networkOnly, Scene: "abandon",
		Edits: []Edit{{
			"internal/place/leaving.go", "switch empty := rest.IsEmpty(); {", "switch empty := true; {",
		}},
	},
	{
		Name: "resent-obtain-forgotten", Off: "an obtain that was sent twice may take the keys again after the release",
		Topology: "one", Checks: []string{check.Leftover}, Rarer: 3,
		Aim:   often(plan.StrandRequests, 120, 300, 800),
		Scene: "brief",
		Edits: []Edit{{"internal/place/leaving.go", "if rest.Taken = nil; rest.IsEmpty() {", "if true {"}},
	},
	{
		Name: "leaving-keeps-the-keys", Off: "a waiter that leaves keeps what a release has handed over to it",
		Topology: "one", Checks: []string{check.Leftover}, Rarer: 3,
		Aim:   often(plan.StopWorker, 120, 200, 400),
		Scene: "abandon",
		Edits: []Edit{{
			"internal/place/leaving.go", "a.claim(a.Keys, rest).Drop(ctx, claim.Terms{Why: why}",
			"a.claim(a.Keys.OnlyLines(), rest).Drop(ctx, claim.Terms{Why: why}",
		}},
	},
	{
		Name: "own-cleanup-not-awaited", Off: "the cleanup after an abandoned call releases what its token has obtained since",
		Topology: "one", Checks: []string{check.Exclusion, check.Loss},
		Aim:   slices.Concat(often(plan.DelayReplies, 120, 300, 1500), often(plan.DelayRequests, 60, 300, 1500)),
		Scene: "custom",
		Edits: []Edit{{"internal/claim/ledger.go", "if len(found) == 0 {", "if true {"}},
	},
	{
		Name: "release-distrusts-itself", Off: "a release that was sent twice reports a loss",
		Topology: "one", Checks: []string{check.Loss},
		Aim:   often(plan.CutReplies, 60, 200, 1500),
		Scene: "brief",
		Edits: []Edit{{
			"internal/claim/free.go",
			"case m.found.doubt.Before(m.held):", "case false:",
		}},
	},
	{
		Name: "kept-past-until", Off: "the context of a kept lock does not end at Until",
		Topology: "one", Checks: []string{check.Kept, check.Exclusion},
		Aim:   often(plan.PauseServer, 60, 500, 2000),
		Scene: "keep",
		Edits: []Edit{
			{"internal/life/kept.go", "if k.Context.Err() == nil && lease.Passed(Until(k.owner)) {", "if false {"},
			{"internal/life/kept.go", "if l.ended == nil && !lease.Passed(o.ValidUntil()) {", "if l.ended == nil {"},
		},
	},
	{
		Name: "no-order", Off: "a caller goes before those who wait in line",
		Topology: "one", Checks: []string{check.Line}, Scene: "queued", Rarer: 3,
		Edits: []Edit{{"obtain.lua", "if not waiter or waiter.entry == entry then", "if true then"}},
	},
	{
		Name: "the-dead-stay-in-line", Off: "a waiter that shows no sign of life is not passed over",
		Topology: "one", Checks: []string{check.Served}, Rarer: 3,
		Aim:   often(plan.KillWorker, 120, 300, 1500),
		Scene: "queued",
		Edits: []Edit{
			{
				"internal/script/line.lua",
				"waiter.live, waiter.open = waiter.left >= 0 and waiter.left <= waiter.life + 1000, mark % 2 == 1",
				"waiter.live, waiter.open = true, mark % 2 == 1\n\t\twaiter.left = math.max(waiter.left, 2000)",
			},
		},
	},
	{
		Name: "hand-over-what-is-taken", Off: "a release hands over keys that others hold",
		Topology: "one", Checks: []string{check.Exclusion, check.Loss},
		Edits: []Edit{{"release.lua", "if not deleted[indices[i] - lines + 1] then", "if false then"}},
	},
	{
		Name: "hand-over-a-part", Off: "a release hands a lock over when some of its keys are free",
		Topology: "one", Checks: []string{check.Exclusion, check.Loss},
		Edits: []Edit{{
			"release.lua", "local fits = tonumber(wants) == #indices and ", "local fits = ",
		}},
	},
	{
		Name: "limits-of-others", Off: "a call takes a key beside holders who allow no more",
		Topology: "one", Checks: []string{check.Limits}, Aim: networkOnly,
		Edits: []Edit{{"internal/script/shared.lua", "math.min(shares.limit[i], seen.least, seen.own)", "shares.limit[i]"}},
	},
	{
		Name: "expires-with-the-first", Off: "a key that several hold expires when one of the holds ends",
		Topology: "one", Checks: []string{check.Exclusion, check.Lease, check.Loss},
		Edits: []Edit{
			{"internal/script/shared.lua", "expire(i, math.max(ends, last or 0), not last)", "expire(i, ends, not last)"},
			{"internal/script/shared.lua", "expire(i, math.max(ends, last, shares.endOf(i)))", "expire(i, ends)"},
		},
	},
	{
		Name: "a-hold-stays", Off: "a release leaves its hold of a key that others hold as well",
		Topology: "one", Checks: []string{check.Leftover}, Rarer: 20, Aim: networkOnly,
		Edits: []Edit{{"internal/script/shared.lua", "failed = failed or drop(houses[i], token)\n\t\tif failed", "if failed"}},
	},
	{
		Name: "readers-first", Off: "a caller that shares a key goes before those who wait in line",
		Topology: "one", Checks: []string{check.Line}, Scene: "queued", Rarer: 3,
		Edits: []Edit{{"obtain.lua", "shared and conflict(KEYS[lines + i - 1], i) or", "shared and false or"}},
	},
	{
		Name: "fence-without-time", Off: "a fencing token is the counter alone, which a server may forget",
		Topology: "memory", Checks: []string{check.Fence, check.Store},
		Aim:   often(plan.RestartServer, 40, 50, 500),
		Scene: "burst",
		Edits: []Edit{
			{
				"obtain.lua", "fence = math.max(number + 1, proposed(now[1] * 1000000 + now[2], ARGV[5] ~= '1' and ARGV[5]))",
				"fence = number + 1",
			},
			{"release.lua", "fence = string.format('%.0f', math.max(number + 1, now))", "fence = string.format('%.0f', number + 1)"},
		},
	},
	{
		Name: "flushed-scripts", Off: "a script that the server does not know is not sent again",
		Topology: "one", Checks: []string{check.Errors},
		Edits: []Edit{{
			"internal/transport/resend.go", "if err != nil && HasCode(err, \"NOSCRIPT\") {", "if false {",
		}},
	},
	{
		Name: "ctx-does-not-end-a-call", Off: "a call waits for its answer although its ctx has ended",
		Topology: "one", Checks: []string{check.Prompt},
		Aim:   often(plan.DelayReplies, 120, 500, 1500),
		Scene: "abandon",
		Edits: []Edit{{
			"internal/transport/send.go", "if !r.await(ctx, c) {", "if !r.await(context.Background(), c) {",
		}},
	},
	{
		Name: "close-does-not-wait", Off: "Close does not wait for what is still to be given up",
		Topology: "quorum", Checks: []string{check.Leftover}, Rarer: 20, Aim: networkOnly, Scene: "leave",
		Edits: []Edit{{"redislock.go", "c.busy() && time.Now().Before(enough)", "false && c.busy() && time.Now().Before(enough)"}},
	},
	{
		Name: "quorum-of-one", Off: "a call of a quorum lock is confirmed as soon as one server has confirmed it",
		Topology: "quorum", Checks: []string{check.Exclusion, check.Lease, check.Loss},
		Aim:   often(plan.DelayRequests, 120, 300, 1500),
		Scene: "keep",
		Edits: []Edit{{"internal/several/grant.go", "t.places.need, t.began, t.want.TTL)", "1, t.began, t.want.TTL)"}},
	},
	{
		Name: "no-repair", Off: "a server that has lost the keys of a quorum does not get them again",
		Topology: "quorum", Checks: []string{check.Repair},
		Aim:   often(plan.ForgetServer, 60, 50, 500),
		Scene: "keep",
		Edits: []Edit{{"internal/several/mend.go", "\tif l.over {\n\t\treturn", "	if true {\n		return"}},
	},
	{
		Name: "half-the-grace", Off: "a guard opens when half of the longest ttl is over",
		Topology: "memory+guard", Checks: []string{check.Exclusion},
		Aim: []plan.Choice{{Kind: plan.FlushAll, Weight: 8}}, Scene: "rely",
		Edits: []Edit{{
			"internal/script/marker.lua",
			"opens = now + longest -- a new term", "opens = now + math.floor(longest / 2) -- a new term",
		}},
	},
	{
		Name: "own-keys-while-closed", Off: "a token obtains keys that it has, although the guard is closed",
		Topology: "memory+guard", Checks: []string{check.Exclusion},
		Aim: goesBack, Scene: "reuse",
		Edits: []Edit{{"obtain.lua", "	closed, term = guard()\n", `	closed, term = guard()
	local mine = type(closed) == 'number'
	for i = 1, tonumber(ARGV[4] or 1) do
		local stored = redis.pcall('GET', KEYS[i])
		mine = mine and type(stored) == 'string' and string.sub(stored .. ' ', 1, #token + 1) == token .. ' '
	end
	closed = mine and 0 or closed
`}},
	},
	{
		Name: "no-search", Off: "a waiter does not look whether it waits in a circle",
		Topology: "one", Checks: []string{check.Circle}, Rarer: 60, Aim: networkOnly, Scene: "nest",
		Edits: []Edit{{"deadlock.go", "found := w.search(); found != nil {", "found := w.search(); found != nil && false {"}},
	},
	{
		Name: "any-wait-is-a-circle", Off: "a holder counts as blocked, whether or not it waits",
		Topology: "one", Checks: []string{check.FalseCircle}, Rarer: 60, Aim: networkOnly, Scene: "nest",
		Edits: []Edit{{"deadlock.go", "if circle == nil {", "if false {"}},
	},
	{
		Name: "all-give-up", Off: "any waiter of a circle gives up, and not only the one that came last",
		Topology: "one", Checks: []string{check.FalseCircle}, Rarer: 60, Aim: networkOnly, Scene: "nest",
		Edits: []Edit{{
			"internal/deadlock/search.go", "script.Glance{Shown: maxShown, Below: ticket}",
			"script.Glance{Shown: maxShown, Below: ticket | 1<<52}",
		}},
	},
}
