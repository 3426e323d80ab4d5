--[[
pttl: the least remaining ttl over the keys of one lock.

KEYS[1..n]  lock keys
KEYS[n+1…]  the houses of the keys that several may hold, if there are such keys; see
            internal/script/shared.lua
ARGV[1]     token
ARGV[2]     modes, as shared.lua describes it, if several may hold some of the keys; else missing

Returns     ms      every key is mine; the least of their remaining ttls
            -1      every key is mine, and none has an expiry
            0       a key is gone or another's, or has less than a millisecond left
Errors      none of its own
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call = KEYS, redis.call -- locals are faster to reach
local token, n = ARGV[1], #KEYS

local shares -- see shared.lua; nil if all keys are exclusive
if ARGV[2] then
	local modes = ARGV[2]
	n = tonumber(string.match(modes, '^%d+'))
	-- include shared
end

local least = -1
for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for i = 1, #values do
		local index, stored, ends = first + i - 1, values[i], nil
		if shares and stored == shares.mark and shares.limit[index] then
			ends = shares.endOf(index)
		end
		if not stored or not ends and stored ~= token and string.sub(stored, 1, #token + 1) ~= token .. ' ' then
			return 0
		end
		local left = ends and ends - shares.now or call('PTTL', KEYS[index])
		if left >= 0 and (least < 0 or left < least) then
			least = left
		end
	end
end
return least
