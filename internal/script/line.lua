--[[
line: the rules of the line, which obtain and release share. This is not a script of its own: the library puts this text
into theirs, in place of the words "include line". Before that, they have set KEYS, CHUNK, call, pcall, now (the time in
µs) and most (how many waiters to pass over). If call is redis.pcall, an error of Redis looks like an empty line.

A line is a sorted set with two members for each waiter. The score of its entry is its ticket:
   ‹inbox›/‹number› ‹wants› ‹ttl› ‹f› ‹fence key›‹value›
wants    how many keys it wants; 0 if it may only be woken
ttl      in ms
f        the length of the fence key's name; 0 without a fence key
value    what its keys will hold: token, or token, a space and metadata
The score of its mark, "~‹inbox›/‹number›", is minus
   deadline in ms * 4096 + life in s * 2 + 1 if its subscription is open

A waiter is live until its deadline, unless the deadline is further away than its life plus a second.

KEYS[…]     the lines, where the header of the script says
ARGV        none
Returns     nothing: it defines deadline, first, late, tell and warn
Publishes   to redislock:inbox:‹inbox›, see tell
Errors      none of its own
]]
local moment = math.floor(now / 1000)
local gone = {} -- by inbox: nobody listens to it any more
local told = {} -- by id: how many received its message; not a number if an ACL forbids PUBLISH

-- deadline returns how many ms a waiter is still live, how many it is live after each try, and whether its subscription is
-- open, as its mark in a line says.
local function deadline(line, id)
	local mark = -(tonumber(call('ZSCORE', line, '~' .. id) or 0) or 0)
	return math.floor(mark / 4096) - moment, math.floor(mark % 4096 / 2) * 1000, mark % 2 == 1
end

-- read returns the waiter of an entry. Its mark is the same in all of its lines, so one of them is enough.
local known = {} -- by entry
local function read(line, entry)
	local waiter = known[entry]
	if not waiter then
		local id, inbox = string.match(entry, '^(([^ /]*)/%d+) ')
		waiter = { entry = entry, id = id or '', inbox = inbox }
		waiter.left, waiter.life, waiter.open = deadline(line, waiter.id)
		known[entry] = waiter
	end
	return waiter
end

-- first returns the first live waiter of a line at or after a position, and whether it has removed any before that: dead
-- waiters, and waiters of an inbox that is gone. If spares is set and there is no other waiter, it leaves the waiters of an
-- inbox that is gone in the line: their process may be alive and have lost only its connection, and then they come back in
-- their old order. One command removes many waiters. When first has passed over as many waiters as most says, it looks no
-- further.
local spares = false
local function first(line, position)
	local removed, size, passed = false, 1, {}
	repeat
		local found = call('ZRANGEBYSCORE', line, '0', '+inf', 'LIMIT', position, size)
		local out, before, waiter = {}, #passed, nil
		for i = 1, #found do
			local next = read(line, found[i])
			local live, unheard = next.left >= 0 and next.left <= next.life + 1000, next.open and gone[next.inbox]
			if live and not unheard then
				waiter = next
				break
			end
			local kept = live and spares and passed or out
			kept[#kept + 1], kept[#kept + 2] = next.entry, '~' .. next.id
		end
		position = position + (#passed - before) / 2
		most = most - (#out + #passed - before) / 2
		for i = 1, waiter and #passed or 0 do
			out[#out + 1] = passed[i]
		end
		for i = 1, #out, CHUNK do
			removed = true
			local last = math.min(i + CHUNK - 1, #out)
			if (tonumber(call('ZREM', line, unpack(out, i, last))) or 0) == 0 then -- an ACL forbids ZREM
				position = position + (last - i + 1) / 2
			end
		end
		if waiter then
			return waiter, removed
		end
		size = math.max(math.min(size * 4, CHUNK / 2, most), 1)
	until not found[1] or most <= 0
	return nil, removed
end

-- late reports whether a waiter has been silent for two of its three intervals. A live waiter tries in each interval.
local function late(waiter)
	return waiter.left < waiter.life / 3
end

-- tell publishes a message to a waiter, at most one per call of the script, and reports whether somebody may have received
-- it. If nobody has, although the waiter's subscription is open, all waiters of its inbox are gone.
local function tell(waiter, message)
	if told[waiter.id] == nil then
		local number = string.sub(waiter.id, #waiter.inbox + 2)
		told[waiter.id] = pcall('PUBLISH', 'redislock:inbox:' .. waiter.inbox, number .. message)
		gone[waiter.inbox] = gone[waiter.inbox] or waiter.open and told[waiter.id] == 0
	end
	return not (waiter.open and told[waiter.id] == 0)
end

-- warn tells the first waiter of a line that its key is taken for so many ms, if its next try could come too late. The
-- line expires after the deadlines of all its waiters. If the key is taken for longer than that, the next tries come soon
-- enough, so warn does not look who is first.
local function warn(line, ttl)
	local left = tonumber(pcall('PTTL', line)) or -1 -- -1: it never expires, or an ACL forbids PTTL
	local waiter = (left == -1 or ttl < left) and first(line, 0)
	if waiter and ttl < waiter.life / 3 then
		tell(waiter, ' after ' .. ttl)
	end
end
