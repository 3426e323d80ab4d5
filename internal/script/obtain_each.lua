--[[
obtain_each: takes the keys of several locks with one key each, as obtain would. It handles only the simple cases.

KEYS[1..n]    lock keys, one of each lock
KEYS[n+1..2n] their lines, as line.lua describes them
ARGV[3i-2]    token of lock i, at least 22 bytes of it at random
ARGV[3i-1]    its metadata; "" for none
ARGV[3i]      its ttl in whole milliseconds

Returns     {r, …}  for each lock 1: granted, newly taken; 0: refused, another's; or -1:
                    nothing was done, call obtain for it; or {-2, closed, id}: refused, because
                    the guard is closed for closed ms; see marker.lua
Errors      those of marker.lua
]]
local KEYS, ARGV, pcall = KEYS, ARGV, redis.pcall -- locals are faster to reach

local guard, closed, term = nil, 0, nil -- see marker.lua; without a guard they stay as they are
-- include marker
if guard then
	closed, term = guard()
	if type(closed) == 'table' then
		return closed
	end
end

local n = #KEYS / 2
local queued = pcall('EXISTS', unpack(KEYS, n + 1)) ~= 0 -- somebody has a position in one of the lines
local replies = {}
for i = 1, n do
	local reply = -1
	if closed > 0 then
		reply = { -2, closed, term }
	elseif not queued or pcall('EXISTS', KEYS[n + i]) == 0 then
		local token, metadata = ARGV[3 * i - 2], ARGV[3 * i - 1]
		local done = pcall('SET', KEYS[i], metadata == '' and token or token .. ' ' .. metadata, 'NX', 'PX', ARGV[3 * i])
		if not done then
			local stored = pcall('GET', KEYS[i])
			if type(stored) == 'string' and string.sub(stored, 1, #token) ~= token then
				reply = 0
			end
		elseif done.ok then
			reply = 1
		end
	end
	replies[i] = reply
end
return replies
