--[[
obtain: takes every key of one lock, or none. A refused caller may take a position in line.

KEYS[1..n]  lock keys, each once
KEYS[n+1]   the fence key, if a fencing token is wanted
KEYS[…]     the lines of the lock keys; without any, waiters are ignored
ARGV[1]     token
ARGV[2]     metadata; "" for none
ARGV[3]     ttl in whole milliseconds
ARGV[4]     n; 1 if missing
ARGV[5]     "0", or missing, for no fencing token; "1" to mint one by the server's clock; any other
            number proposes one, in µs since 1970
ARGV[6]     "1" if keys that are mine get the new metadata; "0", or missing, if they keep theirs
ARGV[7]     entry of a waiter, as internal/script/line.lua describes it; without it, the
            caller takes no position. With it, either every lock key has a line or none has
ARGV[8]     the waiter's ticket; "0" if it knows of none
ARGV[9]     a sum: 1 if its subscription is open, on this server; 2 if waiters of its inbox that have
            left may still stand in these lines
ARGV[10]    for how many whole seconds the waiters of its inbox are live from now on
ARGV[11]    the ticket that it proposes if it has none, in µs since 1970; may be missing

A proposal is taken as if it were at most a second away from the server's clock.

A key is mine if its value is the token, or the token, a space and metadata.
A key can be taken if it is free or mine, and if it is no other caller's turn. A key
that was mine gets at least the ttl: its expiry is never brought forward, but a key
without expiry gets the ttl. Unless ARGV[6] is "1", it keeps its metadata: it may come
of an earlier sending of this call, and the lock may have been refreshed since.

Live waiters with lower tickets go before the caller. If the caller has no ticket, all
live waiters do. If one of the keys is mine, none does: the caller skips the line.

Returns     1                 granted, all newly taken, no fencing token
            {fence, i, …}     granted; KEYS[i] … were mine before, all others are
                              newly taken; fence is 0 if none is wanted
            0                 refused; nothing was written, except that dead waiters were removed
            {-1, ms, ticket, time, {i, …}}
                              refused at that time in µs; the waiter has this ticket in every
                              line, and must try again after ms, or when it is woken; ms is 0 if
                              only a message or a beat can say when. In the line of KEYS[i], its
                              inbox had no mark, or one that had ended long ago, so others of the
                              inbox may be missing there. After a grant the waiter is in no line.
            {-2, closed, id}  refused, whatever the keys hold, because the guard is closed for closed
                              ms; see internal/script/marker.lua. A waiter gets a position in line
                              instead, and the reply above with closed and id added
Publishes   to redislock:inbox:‹inbox›, once for each waiter: its number, if it is the first live
            one of a line from which dead ones were removed; its number, " after " and ttl,
            if it is the first one and the keys are taken for less than its interval; to its own
            inbox its number, " marked ", the time, and each i after a space, up to 1,000 a message
Errors      WRONGTYPE         a lock key or the fence key is not a string, or a line
                              not a sorted set
            ERR               the ttl is not a whole number above 0; the fence
                              key does not hold an integer below 2^53-1
            Those of marker.lua
                              After any error no newly taken key is left behind.
]]
local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach

local guard, closed, term = nil, 0, nil -- see marker.lua; without a guard they stay as they are
-- include marker
if guard then
	closed, term = guard()
	if type(closed) == 'table' then
		return closed
	elseif closed > 0 and not ARGV[7] then
		return { -2, closed, term }
	end
end

-- Most locks are one free key without waiters. The rest of the script would do the same for them with more commands. It also
-- says what is wrong with a bad ttl.
if #KEYS == 2 and not ARGV[4] and closed == 0 and call('EXISTS', KEYS[2]) == 0 then
	local done = pcall('SET', KEYS[1], ARGV[2] == '' and ARGV[1] or ARGV[1] .. ' ' .. ARGV[2], 'NX', 'PX', ARGV[3])
	if done and done.ok then
		return 1
	end
end

local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis
local token, metadata, ttl = ARGV[1], ARGV[2], ARGV[3]
local value = metadata == '' and token or token .. ' ' .. metadata
local n, fenced = tonumber(ARGV[4] or 1), (ARGV[5] or '0') ~= '0'
local lines = fenced and n + 2 or n + 1 -- where they begin in KEYS

-- Check the ttl first: PEXPIRE deletes a key at 0 and fails on a fraction, but only after the keys are set.
if not string.find(ttl, '^[1-9]%d*$') then
	return redis.error_reply('ERR ttl ' .. ttl .. ' is not a whole number of milliseconds above 0')
end

-- proposed returns the number that a caller proposes in place of a time, or the time if the caller proposes nothing.
local function proposed(now, proposal)
	return proposal and math.min(math.max(tonumber(proposal), now - 1000000), now + 1000000) or now
end

-- Compute the fencing token before anything is written, so that a bad counter does no harm.
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
	fence = math.max(number + 1, proposed(now[1] * 1000000 + now[2], ARGV[5] ~= '1' and ARGV[5]))
end

local queued = false -- somebody has a position in one of the lines
for first = lines, #KEYS, CHUNK do
	if call('EXISTS', unpack(KEYS, first, math.min(first + CHUNK - 1, #KEYS))) > 0 then
		queued = true
	end
end

local granted, taken, takes = 1, KEYS, 0 -- what to return; the newly taken keys, and how many of them there are
local failure -- of a command that Redis refuses halfway, for example without a right to PEXPIRE
local free = false -- whether every key was

-- The usual case: every key is free. One MSETNX sets all keys or none, but several do not, so EXISTS looks at a larger set
-- first. MSETEX (Redis 8.4 and Valkey 9.1 or newer) is MSETNX and the expiry in one command.
if not queued and closed == 0 then
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
	local blocked, held = {}, {} -- indices of keys that others hold; values of mine, by key
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
				blocked[#blocked + 1] = first + i - 1
			end
		end
	end
	takes = #taken
	for first = 1, takes, CHUNK do -- to MGET a key of another type looks free
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

	local entry, ticket, refused = ARGV[7], tonumber(ARGV[8] or 0), #blocked > 0 or closed > 0
	if queued or refused and entry then
		local now = call('TIME')
		now = now[1] * 1000000 + now[2]
		local most = math.huge -- waiters to pass over: a live one behind many dead ones must be found
		-- include line

		local id, inbox = string.match(entry or '', '^(([^ /]*)/%d+) ')
		local count, wait = #KEYS - lines + 1, 0 -- lines; in ms, until the next try
		if id and queued and ticket == 0 and count > 0 then -- the reply to an earlier try may have been lost
			ticket = tonumber(call('ZSCORE', KEYS[lines], entry) or 0)
		end
		local stood = ticket > 0

		-- isBehind reports whether a live waiter of a line goes before the caller.
		local function isBehind(line)
			local waiter, removed
			repeat
				waiter, removed = first(line)
			until not waiter or waiter.entry == entry or not removed or tell(waiter, '')
			if not waiter or waiter.entry == entry then
				return false
			end
			local other = stood and tonumber(call('ZSCORE', line, waiter.entry)) or 0
			return not stood or other < ticket or other == ticket and waiter.entry < entry
		end

		local behind = false
		if #blocked > 0 and id then -- those ahead will take the blocked key first, so its line says enough
			behind = queued and count > 0 and isBehind(KEYS[lines + blocked[1] - 1])
			for i = 1, behind and 0 or #blocked, math.max(#blocked - 1, 1) do
				local left = call('PTTL', KEYS[blocked[i]])
				wait = math.max(wait, left == -1 and 0 or math.max(left, 0) + 1)
			end
		elseif #blocked == 0 and not next(held) then
			for i = lines, #KEYS do
				if not behind and isBehind(KEYS[i]) then
					refused, behind = true, true
				end
			end
		end
		if closed > 0 and not behind then
			wait = math.max(wait, closed + 1)
		end

		if refused and id and count > 0 then
			if not stood then
				ticket = proposed(now, ARGV[11])
				for i = lines, #KEYS do
					ticket = math.max(ticket, (call('ZREVRANGE', KEYS[i], '0', '0', 'WITHSCORES')[2] or 0) + 1)
				end
			end
			local mark, old, made = marking(inbox, tonumber(ARGV[10]), tonumber(ARGV[9])), {}, {}
			for i = lines, #KEYS do -- before anything is written: a line may be of another type
				old[i] = call('ZSCORE', KEYS[i], mark.member)
			end
			local position = string.format('%.0f', ticket) -- '..' writes 1.76e+15
			for i = lines, #KEYS do
				if enter(KEYS[i], mark, old[i]) then
					made[#made + 1] = i - lines + 1
				end
				call('ZADD', KEYS[i], position, entry)
			end
			if made[1] then
				announce(id, inbox, made)
			end
			local reply = { -1, wait, ticket, now, made }
			if closed > 0 then
				reply[6], reply[7] = closed, term
			end
			return reply
		end
		if queued and not refused then -- before the keys are written: Redis may refuse a command
			for i = lines, #KEYS do
				if id then
					call('ZREM', KEYS[i], entry)
				end
				warn(KEYS[i], tonumber(ttl))
			end
		end
	end
	if refused then
		return closed > 0 and { -2, closed, term } or 0
	end
	for i = 1, takes do
		local done = pcall('SET', taken[i], value, 'PX', ttl)
		failure = failure or done.err and done
	end
	for key, stored in pairs(held) do
		local left, done = pcall('PTTL', key), nil -- -1 without expiry
		local new = ARGV[6] == '1' and value or stored
		if type(left) == 'table' then
			done = left
		elseif left < tonumber(ttl) then
			done = pcall('SET', key, new, 'PX', ttl)
		elseif stored ~= new then
			done = pcall('SET', key, new, 'KEEPTTL')
		end
		failure = failure or done and done.err and done
	end
end

if fenced and not failure then
	local done = pcall('SET', KEYS[n + 1], string.format('%.0f', fence)) -- '..' would write 1.76e+15
	failure = done.err and done
	granted = free and { fence } or granted
end
if failure then -- the taken keys may have no expiry yet
	for i = 1, takes do
		if type(pcall('DEL', taken[i])) == 'table' then
			pcall('SET', taken[i], value, 'PX', 1)
		end
	end
	return failure
end
return granted
