--[[
blocker: what blocks a refused obtain. It changes nothing.

KEYS[1..n]  lock keys, those that have a line first
KEYS[…]     the lines of the first keys, one for each, as line.lua describes them; there may be none
ARGV[1]     token
ARGV[2]     n
ARGV[3]     the ticket of the caller; "0" for none

Returns     {i, value, ms, ahead}  KEYS[i] is the first key that another token holds, and its value; it
                       expires in ms, or never if ms is -1. ahead is how many live waiters are
                       before the caller in the line of KEYS[i]; dead ones may make it too large
            {i, "", 0, ahead}  no other token holds a key, and KEYS[i] is the first key with live
                       waiters before the caller
            0          nothing blocks the caller any more
Errors      none of its own
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach
local token, n, ticket = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local now = call('TIME')
now = math.floor((now[1] * 1000000 + now[2]) / 1000)
-- As scores of marks: the longest life there is, 2,047 s, and a second from now on, and now.
local latest, earliest = string.format('%.0f', -(now + 2048000) * 4096), string.format('%.0f', -now * 4096)

local function ahead(i)
	local line = KEYS[n + i]
	local live = line and tonumber(pcall('ZCOUNT', line, latest, earliest)) or 0 -- the key may not be a sorted set
	return live > 0 and call('ZCOUNT', line, 0, ticket == '0' and '+inf' or '(' .. ticket) or 0
end

for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for j = 1, #values do
		local value, i = values[j], first + j - 1
		if value and value ~= token and string.sub(value, 1, #token + 1) ~= token .. ' ' then
			return { i, value, call('PTTL', KEYS[i]), ahead(i) }
		end
	end
end
for i = 1, #KEYS - n do
	local before = ahead(i)
	if before > 0 then
		return { i, '', 0, before }
	end
end
return 0
