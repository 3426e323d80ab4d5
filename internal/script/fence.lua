--[[
fence: mints a fencing token for a lock that is held already, or raises the counter to one that was minted elsewhere.

KEYS[1..n]  lock keys on this server; there may be none
KEYS[n+1…]  the houses of the keys that several may hold, if there are such keys; see shared.lua
KEYS[#KEYS] the fence key
ARGV[1]     token
ARGV[2]     the fencing token to raise the counter to; "0" to mint one
ARGV[3]     modes, as shared.lua describes it, if several may hold some of the keys; else missing

Returns     ‹number›  the counter; it is the new fencing token if one was minted
            0         nothing was written: a lock key is gone or another's
Errors      WRONGTYPE the fence key is not a string
            ERR       the fence key does not hold an integer below 2^53-1
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call = KEYS, redis.call -- locals are faster to reach
local token, least = ARGV[1], tonumber(ARGV[2])
local n = #KEYS - 1
local fence = KEYS[#KEYS]

local shares -- see shared.lua; nil if all keys are exclusive
if ARGV[3] then
	local modes = ARGV[3]
	n = tonumber(string.match(modes, '^%d+'))
	-- include shared
end

for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for i = 1, #values do
		local index, stored = first + i - 1, values[i]
		local mine = shares and stored == shares.mark and shares.limit[index] and shares.endOf(index)
		if not stored or not mine and stored ~= token and string.sub(stored, 1, #token + 1) ~= token .. ' ' then
			return 0
		end
	end
end
local counter = redis.pcall('GET', fence)
if type(counter) == 'table' then
	if not string.find(counter.err, '^WRONGTYPE') then
		return counter
	end
	return redis.error_reply('WRONGTYPE fence key "' .. fence .. '" does not hold a counter')
end
counter = counter or '0'
local number = string.find(counter, '^-?%d+$') and tonumber(counter) -- miniredis: nil past 2^63
if not number or number >= 9007199254740991 then
	return redis.error_reply('ERR fence key "' .. fence .. '" does not hold an integer below 2^53-1')
end
if least == 0 then
	local now = call('TIME')
	least = math.max(number + 1, now[1] * 1000000 + now[2])
end
if number < least then
	call('SET', fence, string.format('%.0f', least)) -- '..' would write 1.76e+15
	number = least
end
return number
