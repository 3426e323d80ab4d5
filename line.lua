--[[
line: the rules of the line, which obtain and release share. It is no script of its own: the library puts this text
into theirs, in the place of the words "include line". They have set KEYS, call, pcall and now (the time in µs) before
that. Where call is redis.pcall, an error of Redis reads as an empty line.

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
-- have lost its connection only, and then they come back in the order in which they stand.
local spares = false
local function first(line, position)
	local removed, passed = false, {}
	while true do
		local found = call('ZRANGEBYSCORE', line, 0, '+inf', 'WITHSCORES', 'LIMIT', position, 1)
		local waiter = found[1] and read(line, found[1], found[2])
		local live = waiter and waiter.left >= 0 and waiter.left <= waiter.life + 1000
		if live and waiter.open and gone[waiter.inbox] and spares then
			passed[#passed + 1] = waiter
			position = position + 1
		elseif not waiter or live and not (waiter.open and gone[waiter.inbox]) then
			for i = 1, waiter and #passed or 0 do
				call('ZREM', line, passed[i].entry, '~' .. passed[i].id)
				removed = true
			end
			return waiter or nil, removed
		else
			removed = true
			if (tonumber(call('ZREM', line, waiter.entry, '~' .. waiter.id)) or 0) == 0 then -- an ACL forbids it
				position = position + 1
			end
		end
	end
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
