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

Returns     {fence, i, …}  granted; KEYS[i] … were mine before, every other is
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

-- set gives the keys the value, if all of them are free, and reports whether it did. Several MSETNX are all or none only
-- where it is known beforehand that every key is free.
local function set(keys, count, known)
	if count > CHUNK and not known then
		return false
	end
	for first = 1, count, CHUNK do
		local args = {}
		for i = first, math.min(first + CHUNK - 1, count) do
			args[#args + 1] = keys[i]
			args[#args + 1] = value
		end
		if redis.call('MSETNX', unpack(args)) == 0 then
			return false
		end
	end
	return true
end

local granted, taken, takes, held = { fence }, KEYS, n, nil -- takes: how many of taken
if not set(KEYS, n, false) then
	local refused = false
	taken = {}
	for first = 1, n, CHUNK do
		local values = redis.call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
		for i = 1, #values do
			local key, stored = KEYS[first + i - 1], values[i]
			if not stored then
				taken[#taken + 1] = key
			elseif stored == token or string.sub(stored, 1, #token + 1) == token .. ' ' then
				granted[#granted + 1] = first + i - 1
				held = held or {}
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
	set(taken, takes, true)
end

-- From here on there are keys without an expiry. A command that Redis refuses (to an ACL without PEXPIRE, say) must not
-- leave them so.
local failure
for i = 1, takes do
	local done = redis.pcall('PEXPIRE', taken[i], ttl)
	if done ~= 1 then
		failure = failure or done
	end
end
for key, stored in pairs(held or {}) do
	local left, done = redis.pcall('PTTL', key), nil
	if type(left) == 'table' then
		done = left
	elseif left >= 0 and left < tonumber(ttl) then
		done = redis.pcall('SET', key, value, 'PX', ttl)
	elseif stored ~= value then
		done = redis.pcall('SET', key, value, 'KEEPTTL')
	end
	if done and done.err then
		failure = failure or done
	end
end
if fenced and not failure then
	local done = redis.pcall('SET', KEYS[n + 1], string.format('%.0f', fence)) -- '..' would write 1.76e+15
	failure = done.err and done
end
if failure then
	for i = 1, takes do
		if redis.pcall('DEL', taken[i]) ~= 1 then
			redis.pcall('SET', taken[i], value, 'PX', 1)
		end
	end
	return failure
end
return granted
