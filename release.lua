--[[
release: deletes every key of one lock that is still mine, whatever became of the others.

KEYS[1..n]  lock keys
ARGV[1]     token

Returns     0       every key was mine and is deleted
            {i, …}  KEYS[i] is another's, or for a negative i KEYS[-i] was gone;
                    every other key was mine and is deleted
Errors      none of its own
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local token = ARGV[1]

local lost -- what to return, if not 0
for first = 1, #KEYS, CHUNK do
	local values = redis.call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, #KEYS)))
	local mine = {}
	for i = 1, #values do
		local index, stored = first + i - 1, values[i]
		if stored and (stored == token or string.sub(stored, 1, #token + 1) == token .. ' ') then
			mine[#mine + 1] = KEYS[index]
		elseif not stored and redis.pcall('EXISTS', KEYS[index]) == 0 then
			lost = lost or {}
			lost[#lost + 1] = -index
		else
			lost = lost or {}
			lost[#lost + 1] = index
		end
	end
	if #mine > 0 then
		redis.call('DEL', unpack(mine))
	end
end
return lost or 0
