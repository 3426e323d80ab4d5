--[[
release_each: deletes the keys of several locks with one key each, as release would. It handles only the simple cases.

KEYS[1..n]    lock keys, one of each lock
KEYS[n+1..2n] their lines, as line.lua describes them
ARGV[i]       token of lock i

Returns     {r, …}  for each lock 0: its key was mine and is deleted, or it was gone and the guard
                    is closed; {-1}: it was gone; {1}: it is another's; or -1: nothing was done,
                    call release for it
Errors      none of its own
]]
local KEYS, ARGV, pcall = KEYS, ARGV, redis.pcall -- locals are faster to reach

local guard, closed -- see marker.lua; nil without a guard
-- include marker

local n = #KEYS / 2
local queued = pcall('EXISTS', unpack(KEYS, n + 1)) ~= 0 -- somebody has a position in one of the lines
local values = pcall('MGET', unpack(KEYS, 1, n))
local replies, mine, seen = {}, {}, {}
for i = 1, n do
	local key, token, stored = KEYS[i], ARGV[i], values[i]
	local reply = -1
	if not queued or pcall('EXISTS', KEYS[n + i]) == 0 then
		if stored and (stored == token or string.sub(stored, 1, #token + 1) == token .. ' ') then
			reply = seen[key] and { -1 } or 0
		elseif not values.err then
			reply = { not stored and pcall('EXISTS', key) == 0 and -1 or 1 }
			if guard and reply[1] == -1 then
				closed = closed or guard()
				reply = closed == 0 and reply or 0
			end
		end
	end
	if reply == 0 then
		mine[#mine + 1], seen[key] = key, true
	end
	replies[i] = reply
end
if mine[1] and type(pcall('DEL', unpack(mine))) == 'table' then -- an ACL may forbid it
	for i = 1, n do
		replies[i] = -1
	end
end
return replies
