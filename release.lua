--[[
release: deletes every key of one lock that is still mine, even if others are lost. It takes a waiter out of the lines of
the keys, if asked to. Then it hands the keys over to the first waiters of the lines, or wakes them.

KEYS[1..n]  lock keys; there may be none, for a waiter that only leaves
KEYS[n+1…]  the houses of the keys that several may hold, if there are such keys; see
            internal/script/shared.lua
KEYS[…]     the fence key of the lock, if ARGV[4] is "1"
KEYS[…]     lines, as internal/script/line.lua describes them; without any, nobody is woken. Keys
            are handed over only if each lock key has one
ARGV[1]     token
ARGV[2]     n; 1 if missing. If several may hold some of the keys: modes, as shared.lua describes it;
            then each lock key has a line
ARGV[3]     entry of the waiter that leaves the lines; "" or missing if none does
ARGV[4]     "1" for a fence key; else "0" or missing
ARGV[5]     a ticket, if that waiter steps back: it gives the keys up, but stands in all lines with
            this ticket; "" or missing if it leaves
ARGV[6]     for how many whole seconds it is live from now on, if it steps back
ARGV[7]     a sum: 1 if its subscription is open, on this server; 2 if waiters of its inbox that have
            left may still stand in these lines

Returns     0       every key was mine and is deleted
            {i, …}  KEYS[i] is another's, or for a negative i KEYS[-i] was gone;
                    every other key was mine and is deleted. While the guard is closed, keys that
                    were gone are not listed; see internal/script/marker.lua
            Then it serves the first live waiter of each line concerned. That is every line;
            if a waiter leaves or steps back, only those where a key was deleted, where that
            waiter was first, or where dead ones were first. A waiter that steps back is not
            served. Nor is one who would have fitted beside it, unless dead ones were before that
            one. It hands the keys over if the first waiter wants only deleted keys, is first in all
            their lines, is not late, has its subscription open on this server, and has no fence key
            except that of the lock, and if the guard is open: the keys then hold its value with its
            ttl, and it is in no line any more. Otherwise it wakes that waiter, and those behind it
            who can share the key with it. If others still hold a key, it wakes only those who can
            hold it beside them. If nobody receives a message to
            an open subscription, it serves the next waiter with another inbox and removes those
            before it; if there is no such waiter, they all stay. One call passes over about
            10,000 waiters and does not look behind those.
Publishes   to redislock:inbox:‹inbox›, once for each waiter: its number, " granted ", time in µs,
            space and fencing token or 0, if it was handed its keys; its number, to a first waiter
            that was not; its number, " after " and ttl, to the next one if keys were handed over
            for less than its interval, or to the first one if others hold the key for so long; to
            the inbox of a waiter that steps back, if that had no mark, or one
            that had ended long ago, in some lines, its number, " marked ", the time, and after a space each, which these are among
            the lines, up to 1,000 a message
Errors      what Redis says while it refuses all writes. What else it refuses to do about the lines
            is left undone
]]
local guard -- see marker.lua; nil without a guard
-- include marker

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach
local deleted = {} -- by index
-- By index of a key that I may have shared: whether others still hold it; in how many ms their last hold ends, if that is news.
local shared, left = {}, {}
local queued = false -- somebody has a position in one of the lines

-- Most locks are one key. GET returns an error for a key of another type.
if #KEYS == 2 and not ARGV[2] and pcall('GET', KEYS[1]) == ARGV[1] then
	call('DEL', KEYS[1])
	if pcall('EXISTS', KEYS[2]) == 0 then
		return 0
	end
	deleted[1], queued = true, true
end

local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis
local token, n, leaver, fenced = ARGV[1], tonumber(ARGV[2] or 1), ARGV[3] ~= '' and ARGV[3], ARGV[4] == '1'
local ticket = ARGV[5] ~= '' and ARGV[5] -- of a waiter that steps back
local counter = n and n + 1 -- where the fence key is in KEYS
local shares -- see shared.lua; nil if all keys are exclusive
if not n then
	local modes = ARGV[2]
	n = tonumber(string.match(modes, '^%d+'))
	-- include shared
	counter = n + shares.count + 1
end
local limits = shares and shares.limit or {} -- by index; nil for an exclusive key
local lines = fenced and counter + 1 or counter -- where they begin in KEYS

local lost -- what to return, if not 0
local joint = {} -- the indices of shared keys: whatever becomes of them, the others are deleted first
for start = deleted[1] and 2 or 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, start, math.min(start + CHUNK - 1, n)))
	local mine, count = {}, 0
	for i = 1, #values do
		local index, stored = start + i - 1, values[i]
		if stored and (stored == token or string.sub(stored, 1, #token + 1) == token .. ' ') then
			count = count + 1
			mine[count] = KEYS[index]
			deleted[index] = true
		elseif shares and stored == shares.mark and limits[index] and not shares.wrong(index) then
			joint[#joint + 1] = index
		elseif not stored and pcall('EXISTS', KEYS[index]) == 0 then
			lost = lost or {}
			lost[#lost + 1] = -index
		else
			lost = lost or {}
			lost[#lost + 1] = index
		end
	end
	if count > 0 then
		call('DEL', unpack(mine))
	end
end
for _, index in ipairs(joint) do
	if not shares.endOf(index) then
		lost = lost or {}
		lost[#lost + 1] = -index
	end
	local failure
	deleted[index], left[index], failure = shares.leave(index)
	if failure then
		return failure
	end
	shared[index] = not deleted[index]
end
if joint[1] and lost then
	table.sort(lost, function(a, b) return math.abs(a) < math.abs(b) end)
end

-- isClosed reports whether the guard is closed. It counts as closed if nobody can tell.
local closed
local function isClosed()
	if closed == nil then
		closed = guard and guard() ~= 0 or false
	end
	return closed
end

if lost and isClosed() then -- their holder had them, and only the memory is gone
	local taken = {}
	for i = 1, #lost do
		taken[#taken + 1] = lost[i] > 0 and lost[i] or nil
	end
	lost = #taken > 0 and taken or nil -- not taken[1] and taken: the Lua of miniredis would leave lost as it is
end

for start = lines, queued and 0 or #KEYS, CHUNK do
	local found = pcall('EXISTS', unpack(KEYS, start, math.min(start + CHUNK - 1, #KEYS)))
	queued = queued or found ~= 0
end
local now = (queued or ticket) and pcall('TIME')
if not now or now.err then
	return lost or 0
end
now = now[1] * 1000000 + now[2]
call = pcall -- the keys are deleted: from here on an error must not hide what became of them
local most = 10000 -- waiters to pass over: so many take about 20 ms, in which Redis serves nobody else
-- include line
spares = true

-- handOver gives a waiter the keys whose lines are at those indices in KEYS, and reports whether it has done so. If it has
-- not because nobody received the grant, the waiter's inbox is gone.
local function handOver(waiter, indices)
	local wants, ttl, length, named, rest = string.match(waiter.entry, '^%S+ (%d+) (%d+) (%d+)%+?(%d*) (.*)$')
	length = tonumber(length)
	local fits = tonumber(wants) == #indices and #KEYS - lines + 1 == n
	if told[waiter.id] or not fits or not waiter.open or late(waiter) or isClosed() then
		return false
	end
	for i = 1, #indices do
		if not deleted[indices[i] - lines + 1] then
			return false
		end
	end
	-- PUBLISH does not count those who listen on a replica, but they receive the message: their waiter would believe a grant
	-- that is taken back below. So find out first.
	if (tonumber(call('PUBSUB', 'NUMSUB', 'redislock:inbox:' .. waiter.inbox)[2]) or 0) == 0 then
		return false
	end
	local fence, name = '0', length > 0 and string.sub(rest, 1, length)
	if name then
		local stored = fenced and name == KEYS[counter] and (call('GET', KEYS[counter]) or '0')
		local number = type(stored) == 'string' and string.find(stored, '^-?%d+$') and tonumber(stored)
		if not number or number >= 9007199254740991 then
			return false
		end
		fence = string.format('%.0f', math.max(number + 1, now)) -- '..' would write 1.76e+15
		if call('SET', KEYS[counter], fence).err then
			return false
		end
	end
	-- A waiter that stayed in line after a hand-off could be handed the lock again, with nobody to take it. The message cannot
	-- be taken back, so test first whether an ACL lets this user remove a waiter.
	local value, failed = string.sub(rest, length + 1 + (tonumber(named) or 0)), type(call('ZREM', KEYS[indices[1]], '')) ~= 'number'
	for i = 1, failed and 0 or #indices do
		failed = failed or call('SET', KEYS[indices[i] - lines + 1], value, 'PX', ttl).err
	end
	local heard = not failed and tell(waiter, string.format(' granted %.0f ', now) .. fence)
	if heard and type(told[waiter.id]) == 'number' then
		for i = 1, #indices do
			call('ZREM', KEYS[indices[i]], waiter.entry)
			warn(KEYS[indices[i]], tonumber(ttl))
		end
		return true
	end
	for i = 1, #indices do
		call('DEL', KEYS[indices[i] - lines + 1])
	end
	return false
end

local pending, stirred = {}, {} -- indices of the lines to be served; by index, whether to serve the first waiter
local stepper, inbox = string.match(leaver and ticket and leaver or '', '^(([^ /]*)/%d+) ')
local mark = stepper and marking(inbox, tonumber(ARGV[6]), tonumber(ARGV[7]))
local made = {} -- the lines, from 1 on, in which its inbox had no mark
local seen = {} -- a line counts once: a waiter wants as many lines as keys
for i = lines, #KEYS do
	if not seen[KEYS[i]] then
		pending[#pending + 1] = i
		seen[KEYS[i]] = true
	end
	-- With another ticket, or gone, a waiter that was first may be so no more, and nobody else would tell the one who is.
	stirred[i] = not leaver or deleted[i - lines + 1] or shared[i - lines + 1] or call('ZRANGEBYSCORE', KEYS[i], 0, '+inf', 'LIMIT', 0, 1)[1] == leaver
	if stepper then
		if enter(KEYS[i], mark, call('ZSCORE', KEYS[i], mark.member)) then
			made[#made + 1] = i - lines + 1
		end
		call('ZADD', KEYS[i], ticket, leaver)
		local limit = limits[i - lines + 1]
		if limit then
			call('ZADD', KEYS[i], shareScore(limit, ticket), '=' .. stepper)
		end
	elseif leaver then
		local failure = call('ZREM', KEYS[i], leaver)
		failure = type(failure) == 'table' and failure.err or ''
		if string.find(failure, 'READONLY') or string.find(failure, 'NOREPLICAS') or string.find(failure, 'MISCONF') then
			return redis.error_reply(failure) -- Redis has deleted nothing either
		end
		forget(KEYS[i], { leaver })
	end
end
if made[1] then
	announce(stepper, inbox, made)
end

local looked = {} -- by index: what shares.look has said

-- beside returns how many hold the key of the line KEYS[i], and the least of their limits, as far as this call knows.
local function beside(i)
	local index = i - lines + 1
	if not shared[index] then
		return 0, math.huge
	end
	looked[index] = looked[index] or shares.look(index)
	return looked[index].count, looked[index].least
end

-- fits reports whether the first waiter of a line can go, for all that is known. Behind a leaver, it can: it may not know when
-- the key may be free.
local function fits(i, waiter)
	local count, least = beside(i)
	local ends = left[i - lines + 1]
	if leaver or count + 1 <= math.min(least, limitOf(KEYS[i], waiter)) then
		return true
	elseif ends and ends < waiter.life / 3 then
		tell(waiter, ' after ' .. ends)
	end
	return false
end

-- parts reports whether one who leaves a line may have stood between waiters who can share the key: unless neither it nor
-- the first one has a limit there, because then all before it would have shared the key with those behind it.
local function parts(i, waiter)
	local limit, own = limits[i - lines + 1], leaver and not stepper and limitOf(KEYS[i], waiter) or 1
	return own > 1 and not (own == math.huge and limit == own)
end

-- wasInTheWay reports whether the first waiter can go only because I have: not if I step back and it would have fitted beside
-- me. Those whom other places refuse would wake each other for ever.
local function wasInTheWay(i, waiter)
	local count, least = beside(i)
	return not stepper or count + 2 > math.min(limits[i - lines + 1] or 1, limitOf(KEYS[i], waiter), least)
end

while pending[1] do -- again for each inbox that turns out to be gone
	local waiters, indices = {}, {}
	for _, i in ipairs(pending) do
		local waiter, removed = first(KEYS[i])
		if waiter and waiter.id ~= stepper and (stirred[i] and wasInTheWay(i, waiter) or removed or parts(i, waiter)) and fits(i, waiter) then
			if not indices[waiter.id] then
				waiters[#waiters + 1] = waiter
				indices[waiter.id] = {}
			end
			table.insert(indices[waiter.id], i)
			stirred[i] = true
		end
	end
	pending = {}
	for _, waiter in ipairs(waiters) do
		if handOver(waiter, indices[waiter.id]) then
			-- the next waiter waits for the release of this one
		elseif gone[waiter.inbox] and waiter.open or not tell(waiter, '') then
			for _, i in ipairs(indices[waiter.id]) do
				pending[#pending + 1] = i
			end
		else
			for _, i in ipairs(indices[waiter.id]) do
				if limitOf(KEYS[i], waiter) > 1 then
					local count, least = beside(i)
					wake(KEYS[i], count, least, math.huge)
				end
			end
		end
	end
end
return lost or 0
