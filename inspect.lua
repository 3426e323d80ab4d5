--[[
inspect: what each key holds, and for how long.

KEYS[1..n]  keys
ARGV        none

Returns     {value, ms, value, ms, …}  for each key in order:
            value  nil where there is no such key, or where it is not a string
            ms     the remaining ttl; -1 for a key without expiry, -2 for no such key
Errors      none of its own
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local held = {}
for first = 1, #KEYS, CHUNK do
	local values = redis.call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, #KEYS)))
	for i = 1, #values do
		held[#held + 1] = values[i]
		held[#held + 1] = redis.call('PTTL', KEYS[first + i - 1])
	end
end
return held
