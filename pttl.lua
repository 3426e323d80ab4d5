--[[
pttl: the least remaining ttl over the keys of one lock.

KEYS[1..n]  lock keys
ARGV[1]     token

Returns     ms      every key is mine; the least of their remaining ttls
            -1      every key is mine, and none has an expiry
            0       a key is gone or another's, or has less than a millisecond left
Errors      none of its own
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call = KEYS, redis.call -- locals are faster to reach
local token = ARGV[1]

local least = -1
for first = 1, #KEYS, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, #KEYS)))
	for i = 1, #values do
		local stored = values[i]
		if not stored or stored ~= token and string.sub(stored, 1, #token + 1) ~= token .. ' ' then
			return 0
		end
		local left = call('PTTL', KEYS[first + i - 1])
		if left >= 0 and (least < 0 or left < least) then
			least = left
		end
	end
end
return least
