--[[
line: the rules of the line, which obtain and release share. This is not a script of its own: the library puts this text
into theirs, in place of the words "include line". Before that, they have set KEYS, CHUNK, call, pcall, now (the time in
µs) and most (how many waiters to pass over). If call is redis.pcall, an error of Redis looks like an empty line.

A line is a sorted set. It has an entry for each waiter, whose score is its ticket:
   ‹inbox›/‹number› ‹wants› ‹ttl› ‹f›+‹n› ‹fence key›‹names›‹value›
wants    how many keys it wants; 0 if it may only be woken
ttl      in ms
f, n     the lengths of the fence key's name and of the names; 0 without a fence key, and no "+‹n›" without names
names    the keys that it wants, and the locks that its caller holds, as names.go writes them; no script reads them
value    what its keys will hold: token, or token, a space and metadata
It has a mark for each inbox with such waiters, "~‹inbox›", whose score is minus
   deadline in ms * 4096 + life in s * 2 + 1 if the subscription is open

In the line of a key that it would share, as shared.lua describes it, a waiter has a third member, "=‹inbox›/‹number›". Its
score is minus its ticket if it has no limit there, else minus the limit. Such a waiter wants "00".

All waiters of an inbox are live until the deadline, unless that is further away than the life plus a second. Who removes a
waiter that is not live removes the mark as well, and who makes a mark tells the inbox. So the inbox knows whose entries
may be missing: those that were written before the mark was made. If it says that some of these waiters may have left, they
are removed first. A mark that has ended five seconds ago is never renewed, but made anew. A line without entries is
deleted.

KEYS[…]     the lines, where the header of the script says
ARGV        none
Returns     nothing: it defines marking, lineLasts, limitOf, shareScore, forget, hasEnded, enter, first, late, tell, wake,
            announce and warn
Publishes   to redislock:inbox:‹inbox›, see tell and announce
Errors      none of its own
]]
local moment = math.floor(now / 1000)
local gone = {} -- by inbox: nobody listens to it any more
local told = {} -- by id: how many received its message; not a number if an ACL forbids PUBLISH

-- marking returns a mark that an inbox renews now. state is 1 if its subscription is open, on this server, and 2 more if
-- waiters of the inbox that have left may still stand in line.
local function marking(inbox, life, state)
	local score = -((moment + life * 1000) * 4096 + life * 2 + state % 2)
	local leavers = state >= 2 and inbox .. '/' -- how the ids begin of those who may have left
	return { member = '~' .. inbox, score = string.format('%.0f', score), life = life, leavers = leavers }
end

-- lineLasts returns for how many ms a line lasts if an inbox with that life stands in it. Each third beat prolongs it, and then
-- it outlasts the mark by an interval.
local function lineLasts(life)
	return math.floor(life * 7000 / 3)
end

-- read returns the waiter of an entry. It is live if one of its lines says so. While the same line is read, marks has the
-- marks by inbox.
local known = {} -- by entry
local marks, marked = {}, nil
local function read(line, entry)
	local waiter = known[entry]
	if not waiter or not waiter.live and waiter.line ~= line then
		local id, inbox = string.match(entry, '^(([^ /]*)/%d+) ')
		waiter = { entry = entry, id = id or '', inbox = inbox or '', line = line }
		if marked ~= line then
			marks, marked = {}, line
		end
		local mark = marks[waiter.inbox]
		if not mark then
			mark = -(tonumber(call('ZSCORE', line, '~' .. waiter.inbox) or 0) or 0)
			marks[waiter.inbox] = mark
		end
		waiter.left, waiter.life = math.floor(mark / 4096) - moment, math.floor(mark % 4096 / 2) * 1000
		waiter.live, waiter.open = waiter.left >= 0 and waiter.left <= waiter.life + 1000, mark % 2 == 1
		known[entry] = waiter
	end
	return waiter
end

-- limitOf returns how many holders a waiter would let the key of a line have, itself included.
local function limitOf(line, waiter)
	local score = string.find(waiter.entry, '^%S+ 00 ') and tonumber(call('ZSCORE', line, '=' .. waiter.id) or 1) or 1
	return score < -1000000 and math.huge or math.abs(score)
end

-- shareScore returns the score of a third member.
local function shareScore(limit, ticket)
	return limit == math.huge and '-' .. ticket or string.format('-%.0f', limit)
end

-- forget removes the third members of those whose entries are among these members.
local function forget(line, members)
	local thirds = {}
	for i = 1, #members do
		local id = string.match(members[i], '^(%S+) 00 ')
		if id then
			thirds[#thirds + 1] = '=' .. id
		end
	end
	for i = 1, #thirds, CHUNK do
		call('ZREM', line, unpack(thirds, i, math.min(i + CHUNK - 1, #thirds)))
	end
end

-- hasEnded reports whether a mark with that score has ended so long ago that it must not be renewed.
local function hasEnded(score) return math.floor(-tonumber(score) / 4096) - moment < -5000 end

-- enter renews a mark in a line, or makes it, and reports whether it has made it. old is its score before. enter makes the
-- line last longer if it makes the mark or its life longer, or if the line could end before the mark: its inbox may have
-- been in no beat for this line since others of it have left. If it makes the mark, and waiters that have left may still stand
-- in line, it first removes the waiters of the inbox, but looks at no more than 20,000 waiters in all lines together. It
-- also removes all marks that ended long ago then, because nobody else removes one without entries.
local budget = 20000
local function enter(line, mark, old)
	local made = type(old) ~= 'string' or hasEnded(old)
	local leavers, position = mark.leavers, 0
	while made and leavers and budget > 0 do
		local found, out, removed = call('ZRANGEBYSCORE', line, '0', '+inf', 'LIMIT', position, CHUNK), {}, 0
		for i = 1, #found do
			if string.sub(found[i], 1, #leavers) == leavers then
				out[#out + 1] = found[i]
			end
		end
		if out[1] then
			removed = tonumber(call('ZREM', line, unpack(out))) or 0
			forget(line, out)
		end
		position, budget = position + #found - removed, budget - #found
		if #found < CHUNK then
			break
		end
	end
	if made then
		local ended = call('ZRANGEBYSCORE', line, string.format('(%.0f', -(moment - 5000) * 4096), '-3.8e15', 'LIMIT', '0', CHUNK)
		if ended[1] then
			call('ZREM', line, unpack(ended))
		end
	end
	if type(call('ZADD', line, mark.score, mark.member)) == 'table' then
		return false
	end
	local lasts = lineLasts(mark.life)
	local least = (made or -old % 4096 < mark.life * 2) and lasts or mark.life * 1000 * 4 / 3
	if (tonumber(call('PTTL', line)) or 0) < least then
		call('PEXPIRE', line, lasts)
	end
	return made
end

-- stands reports whether a waiter is live, and its inbox not gone.
local function stands(waiter)
	return waiter.live and not (waiter.open and gone[waiter.inbox])
end

-- first returns the first live waiter of a line, and whether it has removed any before that: dead waiters, and waiters of an
-- inbox that is gone. If spares is set and there is no other waiter, it leaves the waiters of an inbox that is gone in the
-- line: their process may be alive and have lost only its connection, and then they come back in their old order. One
-- command removes many waiters. When first has passed over as many waiters as most says, it looks no further. It deletes a
-- line in which nobody stands.
local spares = false
local function first(line)
	local found = call('ZRANGEBYSCORE', line, '0', '+inf', 'LIMIT', '0', '1')
	local waiter = found[1] and read(line, found[1])
	if waiter and stands(waiter) then -- mostly; the rest makes three tables
		return waiter, false
	end
	waiter = nil
	local removed, position, size, passed = false, 0, 1, {}
	while found[1] and most > 0 do
		local out, before = {}, #passed
		for i = 1, #found do
			local next = read(line, found[i])
			if stands(next) then
				waiter = next
				break
			end
			local kept = next.live and spares and passed or out
			kept[#kept + 1], kept[#kept + 2] = next.entry, '~' .. next.inbox
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
		forget(line, out)
		if waiter then
			return waiter, removed
		end
		size = math.max(math.min(size * 4, CHUNK / 2, most), 1)
		found = call('ZRANGEBYSCORE', line, '0', '+inf', 'LIMIT', position, size)
	end
	if not found[1] and not found.err and position == 0 then
		pcall('DEL', line)
	end
	return nil, removed
end

-- late reports whether an inbox has been silent for two of its three intervals. A live one renews its mark in each interval.
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

-- wake tells the first waiters of a line who can hold its key together, beside so many holders of which the strictest lets
-- it have so many. It tells no more than limit, and leaves out so many before them.
local function wake(line, count, least, limit, before)
	local position, same = before or 0, nil
	repeat
		local found = call('ZRANGEBYSCORE', line, '0', '+inf', 'LIMIT', position, 100)
		for i = 1, #found do
			local waiter = read(line, found[i])
			if stands(waiter) then
				local own = limitOf(line, waiter)
				if own ~= (same or own) or count + 1 > math.min(own, least) or limit <= 0 then
					return
				end
				if tell(waiter, '') then
					same, count, limit = own, count + 1, limit - 1
				end
			end
		end
		position, most = position + #found, most - #found
	until not found[1] or most <= 0
end

-- announce tells an inbox that a call of this waiter has made its marks in the lines of these keys, 1,000 a message.
local function announce(id, inbox, made)
	local number = string.sub(id, #inbox + 2)
	for i = 1, #made, 1000 do
		local lines = table.concat(made, ' ', i, math.min(i + 999, #made))
		pcall('PUBLISH', 'redislock:inbox:' .. inbox, string.format('%s marked %.0f %s', number, now, lines))
	end
end

-- warn tells the first waiter of a line that its key is taken for so many ms, if that could end before the next beat of its
-- inbox, which would say so.
local function warn(line, ttl)
	local waiter = first(line)
	if waiter and ttl < waiter.life / 3 then
		tell(waiter, ' after ' .. ttl)
	end
end
