--[[
obtain: takes every key of one lock, or none. Who is refused may take a place in line.

KEYS[1..n]  lock keys, each once
KEYS[n+1]   the fence key, where ARGV[5] is "1"
KEYS[…]     the lines of the lock keys; none: nobody's turn is respected
ARGV[1]     token
ARGV[2]     metadata; "" for none
ARGV[3]     ttl in whole milliseconds
ARGV[4]     n
ARGV[5]     "1" to mint a fencing token, else "0"
ARGV[6]     id of a waiter: its inbox, a slash and its number; none: takes no place
ARGV[7]     its ticket; "0" if it does not know of one

A key is mine if its value is the token, or the token, a space and metadata.
A key can be taken if it is free or mine, and if it is nobody else's turn. A key
that was mine gets the new metadata and at least the ttl: its expiry is never
brought forward.

A line is a sorted set with two members for a waiter, both in µs: its id, scored
by its ticket, and "~" and its id, scored by minus the time when it was last heard
of. It is live if that was 3 s ago at most, and is not more than 1 s ahead. It is
the turn of the live waiters with lower tickets, for a caller without a ticket of
all of them; but a caller of whom a key is already need not wait for any.

Returns     1                 granted, all newly taken, no fencing token
            {fence, i, …}     granted; KEYS[i] … were mine before, every other is
                              newly taken; fence is 0 where ARGV[5] is "0"
            0                 refused, and nothing was written but the removal of the dead
            {-1, ms, ticket}  refused; the waiter has this place in every line, and
                              is to try again after so long, or when it is woken
                              After a grant the waiter is in no line any more.
Publishes   the number of a waiter to redislock:inbox:‹inbox›, once, if it is the first
            live one of a line and dead ones were removed there, or the keys are taken
            for less than 1 s
Errors      WRONGTYPE         a lock key or the fence key is not a string, or a line
                              not a sorted set
            ERR               the ttl is not a whole number above 0; the fence
                              key does not hold an integer below 2^53-1
                              After any error no newly taken key is left behind.
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach
local token, metadata, ttl = ARGV[1], ARGV[2], ARGV[3]
local value = metadata == '' and token or token .. ' ' .. metadata

-- Most locks are one free key that nobody waits for. The rest of the script does the same for them at more length, and says
-- what is wrong with the ttl.
if #KEYS == 2 and ARGV[4] == '1' and ARGV[5] == '0' and call('EXISTS', KEYS[2]) == 0 then
	local done = pcall('SET', KEYS[1], value, 'NX', 'PX', ttl)
	if done and done.ok then
		return 1
	end
end

local n, fenced = tonumber(ARGV[4]), ARGV[5] == '1'
local lines = fenced and n + 2 or n + 1 -- where they begin in KEYS

-- PEXPIRE deletes a key at 0 and fails on a fraction, and by then the keys are set.
if not string.find(ttl, '^[1-9]%d*$') then
	return redis.error_reply('ERR ttl ' .. ttl .. ' is not a whole number of milliseconds above 0')
end

-- The fencing token is settled before anything is written, so that a bad counter costs nothing.
local fence = 0
if fenced then
	local counter = pcall('GET', KEYS[n + 1])
	if type(counter) == 'table' then
		if not string.find(counter.err, '^WRONGTYPE') then
			return counter
		end
		return redis.error_reply('WRONGTYPE fence key "' .. KEYS[n + 1] .. '" does not hold a counter')
	end
	counter = counter or '0'
	local number = string.find(counter, '^-?%d+$') and tonumber(counter) -- miniredis: nil past 2^63
	if not number or number >= 9007199254740991 then
		return redis.error_reply('ERR fence key "' .. KEYS[n + 1] .. '" does not hold an integer below 2^53-1')
	end
	local now = call('TIME')
	fence = math.max(number + 1, now[1] * 1000000 + now[2])
end

local queued = false -- somebody has a place in one of the lines
for first = lines, #KEYS, CHUNK do
	if call('EXISTS', unpack(KEYS, first, math.min(first + CHUNK - 1, #KEYS))) > 0 then
		queued = true
	end
end

local granted, taken, takes = 1, KEYS, 0 -- what to return; the newly taken keys, and how many they are
local failure -- of a command that Redis refuses halfway, to an ACL without PEXPIRE, say
local free = false -- every key was

-- The usual case: every key is free. MSETNX is all or none, several are not: a larger set is looked at first. Where
-- there is MSETEX, from Redis 8.4 and Valkey 9.1 on, it is MSETNX and the expiry in one.
if not queued then
	local lasting = (redis.REDIS_VERSION_NUM or 0) >= 0x80400 or (redis.VALKEY_VERSION_NUM or 0) >= 0x90100
	free = true
	for first = 1, n > CHUNK and n or 0, CHUNK do
		free = free and call('EXISTS', unpack(KEYS, first, math.min(first + CHUNK - 1, n))) == 0
	end
	for first = 1, free and n or 0, CHUNK do
		local last, args, count = math.min(first + CHUNK - 1, n), {}, 0
		for i = first, last do
			args[count + 1], args[count + 2] = KEYS[i], value
			count = count + 2
		end
		local done
		if lasting then
			args[count + 1], args[count + 2], args[count + 3] = 'NX', 'PX', ttl
			done = pcall('MSETEX', last - first + 1, unpack(args))
		else
			done = pcall('MSETNX', unpack(args))
		end
		if done ~= 1 then -- refused, or an error: nothing of this chunk is written
			free, failure = done ~= 0, done ~= 0 and done
			break
		end
		takes = last
		for i = first, lasting and 0 or last do
			done = pcall('PEXPIRE', KEYS[i], ttl)
			failure = failure or done ~= 1 and done
		end
	end
end
if not free then
	local blocking, held = {}, {}
	granted, taken = { fence }, {}
	for first = 1, n, CHUNK do
		local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
		for i = 1, #values do
			local key, stored = KEYS[first + i - 1], values[i]
			if not stored then
				taken[#taken + 1] = key
			elseif stored == token or string.sub(stored, 1, #token + 1) == token .. ' ' then
				granted[#granted + 1] = first + i - 1
				held[key] = stored
			else
				blocking[#blocking + 1] = key
			end
		end
	end
	takes = #taken
	for first = 1, takes, CHUNK do -- MGET shows a key of another type as free
		local last = math.min(first + CHUNK - 1, takes)
		if call('EXISTS', unpack(taken, first, last)) > 0 then
			for i = first, last do
				local kind = call('TYPE', taken[i]).ok
				if kind ~= 'none' then
					return redis.error_reply('WRONGTYPE key "' .. taken[i] .. '" holds a ' .. kind .. ', not a lock')
				end
			end
		end
	end

	if not fenced and #granted == 1 then
		granted = 1
	end

	local id, ticket, refused = ARGV[6], tonumber(ARGV[7] or 0), #blocking > 0
	if queued or refused and id then
		local LIFE, AHEAD = 3000000, 1000000 -- how long a waiter is live, and how far clocks may jump, in µs
		local LONGEST = 1000 -- between two tries, in ms
		local now = call('TIME')
		now = now[1] * 1000000 + now[2]

		local woken = {}
		local function wake(waiter)
			if not woken[waiter] then
				woken[waiter] = true
				local inbox, number = string.match(waiter, '^(.*)/(.*)$')
				pcall('PUBLISH', 'redislock:inbox:' .. inbox, number) -- an ACL may forbid it
			end
		end
		-- live returns the first live waiter of a line from that position on, its ticket, when it was last heard of,
		-- and whether dead ones were removed before it.
		local function live(line, position)
			local moved = false
			while true do
				local found = call('ZRANGEBYSCORE', line, 0, '+inf', 'WITHSCORES', 'LIMIT', position, 1)
				if not found[1] then
					return nil
				end
				local heard = -(call('ZSCORE', line, '~' .. found[1]) or 0)
				if heard >= now - LIFE and heard <= now + AHEAD then
					return found[1], tonumber(found[2]), heard, moved
				end
				call('ZREM', line, found[1], '~' .. found[1])
				moved = true
			end
		end

		local wait = 1 -- in ms: until all that blocks has lapsed, but no longer than LONGEST
		for i = 1, id and #blocking or 0 do
			local left = wait < LONGEST and call('PTTL', blocking[i]) or 0
			wait = math.max(wait, left < 0 and LONGEST or left + 1)
		end
		if queued and id and ticket == 0 then -- the reply to an earlier try may have been lost
			for i = lines, #KEYS do
				ticket = math.max(ticket, call('ZSCORE', KEYS[i], id) or 0)
			end
		end
		for i = lines, next(held) and 0 or #KEYS do
			local position = 0
			while not refused or id and wait < LONGEST do
				local waiter, turn, heard, moved = live(KEYS[i], position)
				if moved and position == 0 and waiter ~= id then
					wake(waiter)
				end
				if not waiter or waiter == id or ticket > 0 and (turn > ticket or turn == ticket and waiter > id) then
					break
				end
				refused = true
				wait = math.max(wait, math.ceil((heard + LIFE - now) / 1000) + 1)
				position = position + 1
			end
		end

		if refused and id and lines <= #KEYS then
			if ticket == 0 then
				ticket = now
				for i = lines, #KEYS do
					ticket = math.max(ticket, (call('ZREVRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2] or 0) + 1)
				end
			end
			local place, heard = string.format('%.0f', ticket), string.format('%.0f', -now) -- '..' writes 1.76e+15
			for i = lines, #KEYS do
				call('ZADD', KEYS[i], place, id, heard, '~' .. id)
				call('PEXPIRE', KEYS[i], LIFE / 1000)
			end
			-- The dead further back are removed too, from one of the lines at a time.
			local line = KEYS[lines + now % (#KEYS - lines + 1)]
			local dead = call('ZRANGEBYSCORE', line, string.format('(%.0f', LIFE - now), '(0')
			for i = 1, #dead do
				call('ZREM', line, dead[i], string.sub(dead[i], 2))
			end
			local first = dead[1] and live(line, 0)
			if first and first ~= id then
				wake(first)
			end
			return { -1, math.min(wait, LONGEST), ticket }
		end
		if queued and not refused then -- before the keys are written: Redis may refuse a command
			for i = lines, #KEYS do
				if id then
					call('ZREM', KEYS[i], id, '~' .. id)
				end
				local waiter = tonumber(ttl) < LONGEST and live(KEYS[i], 0)
				if waiter then
					wake(waiter)
				end
			end
		end
	end
	if refused then
		return 0
	end
	for i = 1, takes do
		local done = pcall('SET', taken[i], value, 'PX', ttl)
		failure = failure or done.err and done
	end
	for key, stored in pairs(held) do
		local left, done = pcall('PTTL', key), nil
		if type(left) == 'table' then
			done = left
		elseif left >= 0 and left < tonumber(ttl) then
			done = pcall('SET', key, value, 'PX', ttl)
		elseif stored ~= value then
			done = pcall('SET', key, value, 'KEEPTTL')
		end
		failure = failure or done and done.err and done
	end
end

if fenced and not failure then
	local done = pcall('SET', KEYS[n + 1], string.format('%.0f', fence)) -- '..' would write 1.76e+15
	failure = done.err and done
	granted = free and { fence } or granted
end
if failure then -- what was taken may have no expiry yet
	for i = 1, takes do
		if type(pcall('DEL', taken[i])) == 'table' then
			pcall('SET', taken[i], value, 'PX', 1)
		end
	end
	return failure
end
return granted
