--[[
obtain: takes every key of one lock, or none.

KEYS[1..n]  lock keys, each once
KEYS[n+1]   the fence key, where ARGV[4] is "1"
ARGV[1]     token
ARGV[2]     metadata; "" for none
ARGV[3]     ttl in whole milliseconds
ARGV[4]     "1" to mint a fencing token, else "0"

A key is mine if its value is the token, or the token, a space and metadata.
A key can be taken if it is free or mine. A key that was mine gets the new
metadata and at least the ttl: its expiry is never brought forward.

Returns     1              granted, all newly taken, no fencing token
            {fence, i, …}  granted; KEYS[i] … were mine before, every other is
                           newly taken; fence is 0 where ARGV[4] is "0"
            0              a key is another's; nothing was written
Errors      WRONGTYPE      a lock key or the fence key is not a string
            ERR            the ttl is not a whole number above 0; the fence
                           key does not hold an integer below 2^53-1
                           After any error no newly taken key is left behind.
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local token, metadata, ttl, fenced = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local value = metadata == '' and token or token .. ' ' .. metadata
local n = fenced and #KEYS - 1 or #KEYS

-- PEXPIRE deletes a key at 0 and fails on a fraction, and by then the keys are set.
if not string.find(ttl, '^[1-9]%d*$') then
	return redis.error_reply('ERR ttl ' .. ttl .. ' is not a whole number of milliseconds above 0')
end

-- The fencing token is settled before anything is written, so that a bad counter costs nothing.
local fence = 0
if fenced then
	local counter = redis.pcall('GET', KEYS[n + 1])
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
	local now = redis.call('TIME')
	fence = math.max(number + 1, now[1] * 1000000 + now[2])
end

local granted, taken, takes = 1, KEYS, n -- what to return; the newly taken keys, and how many they are
local failure -- of a command that Redis refuses halfway, to an ACL without PEXPIRE, say
local free = false

-- The usual case: every key is free. Several MSETNX would not be all or none, so a larger set goes the long way.
if n <= CHUNK then
	local args = {}
	for i = 1, n do
		args[2 * i - 1], args[2 * i] = KEYS[i], value
	end
	free = redis.call('MSETNX', unpack(args)) == 1
end
if free then
	for i = 1, n do
		local done = redis.pcall('PEXPIRE', KEYS[i], ttl)
		if done ~= 1 then
			failure = failure or done
		end
	end
else
	local refused, held = false, {}
	granted, taken = { fence }, {}
	for first = 1, n, CHUNK do
		local values = redis.call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
		for i = 1, #values do
			local key, stored = KEYS[first + i - 1], values[i]
			if not stored then
				taken[#taken + 1] = key
			elseif stored == token or string.sub(stored, 1, #token + 1) == token .. ' ' then
				granted[#granted + 1] = first + i - 1
				held[key] = stored
			else
				refused = true
			end
		end
	end
	takes = #taken
	for first = 1, takes, CHUNK do -- MGET shows a key of another type as free
		local last = math.min(first + CHUNK - 1, takes)
		if redis.call('EXISTS', unpack(taken, first, last)) > 0 then
			for i = first, last do
				local kind = redis.call('TYPE', taken[i]).ok
				if kind ~= 'none' then
					return redis.error_reply('WRONGTYPE key "' .. taken[i] .. '" holds a ' .. kind .. ', not a lock')
				end
			end
		end
	end
	if refused then
		return 0
	end
	for i = 1, takes do
		local done = redis.pcall('SET', taken[i], value, 'PX', ttl)
		failure = failure or done.err and done
	end
	for key, stored in pairs(held) do
		local left, done = redis.pcall('PTTL', key), nil
		if type(left) == 'table' then
			done = left
		elseif left >= 0 and left < tonumber(ttl) then
			done = redis.pcall('SET', key, value, 'PX', ttl)
		elseif stored ~= value then
			done = redis.pcall('SET', key, value, 'KEEPTTL')
		end
		failure = failure or done and done.err and done
	end
end

if fenced and not failure then
	local done = redis.pcall('SET', KEYS[n + 1], string.format('%.0f', fence)) -- '..' would write 1.76e+15
	failure = done.err and done
	granted = free and { fence } or granted
end
if failure then -- what was taken may have no expiry yet
	for i = 1, takes do
		if type(redis.pcall('DEL', taken[i])) == 'table' then
			redis.pcall('SET', taken[i], value, 'PX', 1)
		end
	end
	return failure
end
return granted
