--[[
obtain: takes every key of one lock, or none. A refused caller may take a position in line.

KEYS[1..n]  lock keys, each once
KEYS[n+1…]  the houses of the keys that several may hold, if there are such keys; see
            internal/script/shared.lua
KEYS[…]     the fence key, if a fencing token is wanted
KEYS[…]     the lines of the lock keys; without any, waiters are ignored
ARGV[1]     token
ARGV[2]     metadata; "" for none
ARGV[3]     ttl in whole milliseconds
ARGV[4]     n; 1 if missing. If several may hold some of the keys: modes, as shared.lua describes it;
            then either every lock key has a line or none has
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

A key is mine if its value is the token, or the token, a space and metadata, or if it is
shared and its house has a hold of the token. A shared key can also be taken beside others,
if it then has no more holders than any of them allows, me included. To share a key that is
mine alone leaves it so; the other way round, the caller is refused.
A key can be taken if it is free or mine, and if it is no other caller's turn. A key
that was mine gets at least the ttl: its expiry is never brought forward, but a key
without expiry gets the ttl. Unless ARGV[6] is "1", it keeps its metadata: it may come
of an earlier sending of this call, and the lock may have been refreshed since.

Live waiters with lower tickets go before the caller. If the caller has no ticket, all
live waiters do. If one of the keys is mine, none does: the caller skips the line. Those who
want to share a key with the same limit do not go before each other there: they count as
holders.

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
            one of a line from which dead ones were removed, or can share the key with that one, or is
            one of the next two behind the caller who can share a key that is taken now; its number,
            " after " and ttl, if it is the first one and the keys are taken for less than its
            interval; to its own inbox its number, " marked ", the time, and each i after a space, up to 1,000 a message
Errors      WRONGTYPE         a lock key or the fence key is not a string, or a line or a house
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
local counter = n and n + 1 -- where the fence key is in KEYS
local shares -- see shared.lua; nil if all keys are exclusive
if not n then
	local modes = ARGV[4]
	n = tonumber(string.match(modes, '^%d+'))
	-- include shared
	counter = n + shares.count + 1
end
local limits = shares and shares.limit or {} -- by index; nil for an exclusive key
local lines = fenced and counter + 1 or counter -- where they begin in KEYS

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
	local stored = pcall('GET', KEYS[counter])
	if type(stored) == 'table' then
		if not string.find(stored.err, '^WRONGTYPE') then
			return stored
		end
		return redis.error_reply('WRONGTYPE fence key "' .. KEYS[counter] .. '" does not hold a counter')
	end
	stored = stored or '0'
	local number = string.find(stored, '^-?%d+$') and tonumber(stored) -- miniredis: nil past 2^63
	if not number or number >= 9007199254740991 then
		return redis.error_reply('ERR fence key "' .. KEYS[counter] .. '" does not hold an integer below 2^53-1')
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
local created = {} -- the indices of taken keys that are shared
local joined = {} -- by index: what is known of shared keys that somebody holds

-- The usual case: every key is free. One MSETNX sets all keys or none, but several do not, so EXISTS looks at a larger set
-- first. MSETEX (Redis 8.4 and Valkey 9.1 or newer) is MSETNX and the expiry in one command.
if not queued and closed == 0 and not shares then
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
	local joins = {} -- indices of shared keys that somebody holds
	local taking = {} -- the indices of taken
	granted, taken = { fence }, {}
	for first = 1, n, CHUNK do
		local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
		for i = 1, #values do
			local key, stored = KEYS[first + i - 1], values[i]
			if not stored then
				taken[#taken + 1] = key
				taking[#taken] = first + i - 1
			elseif shares and stored == shares.mark and limits[first + i - 1] then
				joins[#joins + 1] = first + i - 1
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

	for _, i in ipairs(shares and taking or {}) do
		local wrong = limits[i] and shares.wrong(i, true)
		if wrong then
			return wrong
		end
	end
	for _, i in ipairs(joins) do
		local wrong = shares.wrong(i)
		if wrong then
			return wrong
		end
		local seen = shares.look(i)
		joined[i] = seen
		if seen.ends then
			granted[#granted + 1] = i
			held[KEYS[i]] = shares.mark
		end
		if not shares.fits(i, seen) then
			blocked[#blocked + 1] = i
			if seen.stale then
				shares.purge(i)
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
			if removed and limitOf(line, waiter) > 1 then
				wake(line, 0, math.huge, 10000)
			end
			local other = stood and tonumber(call('ZSCORE', line, waiter.entry)) or 0
			return not stood or other < ticket or other == ticket and waiter.entry < entry
		end

		local before = stood and string.format('(%.0f', ticket) or '+inf' -- the tickets of those ahead

		-- firstOther returns the entries from the first one on, of so many waiters ahead, that wants a key with some limit, and no
		-- more than size; nothing if all want it without one. The scores of their third members are their tickets, so this takes few
		-- commands; see line.lua.
		local function firstOther(line, ahead, size)
			local oldest, newest = '-3.8e15', '-1e12'
			if call('ZCOUNT', line, stood and string.format('(-%.0f', ticket) or oldest, newest) == ahead then
				return {}
			end
			local low, high, marks = 0, ahead - 1, call('ZCOUNT', line, '-inf', '(0')
			while low < high do
				local middle = math.floor((low + high) / 2)
				local at = call('ZRANGE', line, marks + middle, marks + middle, 'WITHSCORES')[2]
				if call('ZCOUNT', line, string.format('-%.0f', tonumber(at)), newest) <= middle then
					high = middle
				else
					low = middle + 1
				end
			end
			return call('ZRANGE', line, marks + low, marks + math.min(low + size, ahead) - 1)
		end

		-- conflict reports whether a live waiter ahead wants the shared KEYS[i] with another limit, or there is no room beside all
		-- those who want it with the same one. It removes dead ones before it says so, many at once, and tells those behind them.
		local function conflict(line, i)
			local limit, seen = limits[i], joined[i] or { count = 0, least = math.huge }
			local room, size, refuses, dead = math.min(limit, seen.least) - seen.count - 1, 1, false, nil
			repeat
				local ahead, found, live = call('ZCOUNT', line, '0', before), {}, 0
				if ahead > 0 and room < math.huge then
					found = call('ZRANGEBYSCORE', line, '0', before, 'LIMIT', 0, room + 1)
				elseif ahead > 0 then
					found = firstOther(line, ahead, size)
				end
				dead = {}
				for j = 1, #found do
					local waiter, count = read(line, found[j]), #dead
					if waiter.live then
						live = live + 1
						refuses = refuses or live > room or limitOf(line, waiter) ~= limit
					elseif not refuses then
						dead[count + 1], dead[count + 2], dead[count + 3] = waiter.entry, '=' .. waiter.id, '~' .. waiter.inbox
					end
				end
				for j = 1, #dead, CHUNK do
					call('ZREM', line, unpack(dead, j, math.min(j + CHUNK - 1, #dead)))
				end
				if dead[1] then
					wake(line, seen.count, seen.least, 10000)
				end
				size = math.min(size * 4, 500)
			until refuses or not dead[1]
			return refuses
		end

		-- due makes the caller try again when the key that refuses it may be free. If only some are ahead who share it, they may be
		-- refused by other keys then, and nobody would tell the caller.
		local function due(i, ahead)
			local shared = joined[i]
			if not ahead or shared and call('ZCOUNT', KEYS[lines + i - 1], '0', before) < 8 then
				local left = shared and shared.first - shares.now or call('PTTL', KEYS[i])
				wait = math.max(wait, left == -1 and 0 or math.max(left, 0) + 1)
			end
		end

		local behind = false
		if #blocked > 0 and id then -- those ahead will take the blocked key first, so its line says enough
			behind = queued and count > 0 and isBehind(KEYS[lines + blocked[1] - 1])
			due(blocked[1], behind)
			if not behind and #blocked > 1 then
				due(blocked[#blocked], false)
			end
		elseif #blocked == 0 and not next(held) then
			for i = 1, count do
				local shared = limits[i]
				if not behind and (shared and conflict(KEYS[lines + i - 1], i) or not shared and isBehind(KEYS[lines + i - 1])) then
					refused, behind = true, true
					if shared and id then
						due(i, true)
					end
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
				local limit = limits[i - lines + 1]
				if limit then
					call('ZADD', KEYS[i], shareScore(limit, position), '=' .. id)
				end
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
				local limit, lasts = limits[i - lines + 1], tonumber(ttl)
				if id then
					call('ZREM', KEYS[i], entry)
				end
				if limit then
					local seen = joined[i - lines + 1]
					if id then
						call('ZREM', KEYS[i], '=' .. id)
					end
					-- If a hold has ended without a release, nobody has told those who also fit. Those ahead try by themselves: on
					-- a quorum that cannot grant, waiters that step back would wake each other for ever.
					local ahead = stood and call('ZCOUNT', KEYS[i], '0', string.format('%.0f', ticket)) or 0
					wake(KEYS[i], (seen and seen.count or 0) + 1, math.min(seen and seen.least or limit, limit), 2, ahead)
					lasts = seen and seen.count > 0 and math.min(lasts, seen.first - shares.now) or lasts
				end
				warn(KEYS[i], lasts)
			end
		end
	end
	if refused then
		return closed > 0 and { -2, closed, term } or 0
	end
	for i = 1, takes do
		local done
		if limits[taking[i]] then
			created[#created + 1] = taking[i]
			done = shares.create(taking[i], tonumber(ttl), metadata)
		else
			done = pcall('SET', taken[i], value, 'PX', ttl)
		end
		failure = failure or done and done.err and done
	end
	for _, i in ipairs(joins) do
		local seen = joined[i]
		local ends, new = math.max(seen.ends or 0, shares.now + ttl), not seen.ends or ARGV[6] == '1'
		failure = failure or shares.hold(i, ends, math.min(limits[i], seen.own), new and metadata or nil, seen.last)
		held[KEYS[i]] = nil
	end
	for _, i in ipairs(joins) do
		if joined[i].stale then
			shares.purge(i)
		end
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
	local done = pcall('SET', KEYS[counter], string.format('%.0f', fence)) -- '..' would write 1.76e+15
	failure = done.err and done
	granted = free and { fence } or granted
end
if failure then -- the taken keys may have no expiry yet
	for i, seen in pairs(joined) do
		if not seen.ends then
			shares.undo(i, false)
		end
	end
	for _, i in ipairs(created) do
		shares.undo(i, true)
	end
	for i = 1, takes do
		if type(pcall('DEL', taken[i])) == 'table' then
			pcall('SET', taken[i], value, 'PX', 1)
		end
	end
	return failure
end
return granted
