--[[
line: the rules of the line, which obtain and release share. It is no script of its own: the library puts this text
into theirs, in the place of the words "include line". They have set KEYS, CHUNK, call, pcall, now (the time in µs) and
most (how many dead waiters to remove) before that. Where call is redis.pcall, an error of Redis reads as an empty line.

A line is a sorted set with two members for each waiter. Its entry is scored by its ticket:
   ‹inbox›/‹number› ‹wants› ‹ttl› ‹f› ‹fence key›‹value›
wants    how many keys it wants; 0: it may only be woken
ttl      in ms
f        the length of the name of the fence key; 0 for none
value    what its keys are to hold: token, or token, a space and metadata
Its mark, "~‹inbox›/‹number›", is scored by minus
   deadline in ms * 4096 + life in s * 2 + 1 if its subscription is open

A waiter is live until its deadline, and if that is no more than its life and a second away.

KEYS[…]     the lines, as the script says
ARGV        none
Returns     nothing: it defines first, tell, markOf and late
Publishes   to redislock:inbox:‹inbox›, see tell
Errors      none of its own
]]
local moment = math.floor(now / 1000)
local gone = {} -- by inbox: nobody listens to it any more
local told = {} -- by id: how many received what was published; not a number where an ACL forbids to publish

-- read returns the waiter of an entry. Its marks are the same in all of its lines, so one is enough.
local known = {} -- by entry
local function read(line, entry, ticket)
	local waiter = known[entry]
	if not waiter then
		local id, inbox = string.match(entry, '^(([^ /]*)/%d+) ')
		local mark = -(id and tonumber(call('ZSCORE', line, '~' .. id) or 0) or 0)
		waiter = {
			entry = entry, id = id or '', inbox = inbox, ticket = tonumber(ticket),
			left = math.floor(mark / 4096) - moment, life = math.floor(mark % 4096 / 2) * 1000, open = mark % 2 == 1,
		}
		known[entry] = waiter
	end
	return waiter
end

-- first returns the first live waiter of a line from that position on, and whether any were removed before it: the dead,
-- and those of an inbox that is gone. If spares is set, the latter stay while there is nobody else: their process may live, and
-- have lost its connection only, and then they come back in the order in which they stand. Many go with one command. When
-- most have been looked at, it looks no further.
local spares = false
local function first(line, position)
	local removed, size, passed = false, 1, {}
	repeat
		local found = call('ZRANGEBYSCORE', line, 0, '+inf', 'WITHSCORES', 'LIMIT', position, size)
		local out, before, waiter = {}, #passed, nil
		for i = 1, #found, 2 do
			local next = read(line, found[i], found[i + 1])
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
			if (tonumber(call('ZREM', line, unpack(out, i, last))) or 0) == 0 then -- an ACL forbids it
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

-- late reports whether a waiter has been silent for two of its three intervals. A live one tries in each.
local function late(waiter)
	return waiter.left < waiter.life / 3
end

-- tell publishes a message to a waiter, one at most, and reports whether somebody may have received it. If nobody has
-- although its subscription is open, all waiters of its inbox are gone.
local function tell(waiter, message)
	if told[waiter.id] == nil then
		local number = string.sub(waiter.id, #waiter.inbox + 2)
		told[waiter.id] = pcall('PUBLISH', 'redislock:inbox:' .. waiter.inbox, number .. message)
		gone[waiter.inbox] = gone[waiter.inbox] or waiter.open and told[waiter.id] == 0
	end
	return not (waiter.open and told[waiter.id] == 0)
end

-- warn tells the first of a line that its keys are taken for so many ms, if it would look too late.
local function warn(line, ttl)
	local waiter = first(line, 0)
	if waiter and ttl < waiter.life / 3 then
		tell(waiter, ' after ' .. ttl)
	end
end
