--[[
blocker: what blocks a refused obtain. It changes nothing.

KEYS[1..n]  lock keys, those that have a line first
KEYS[n+1…]  the houses of all keys that can have one; see shared.lua
KEYS[…]     the line and the note of each of the first keys, as line.lua and note.lua describe them; there may be none
ARGV[1]     token
ARGV[2]     modes, as shared.lua describes it, with all keys that can have a house: 1 for those that
            the caller does not want to share
ARGV[3]     the ticket of the caller; "0" for none

Returns     {i, value, ms, ahead, holders, waits}  KEYS[i] is the first key that others hold so that the caller
                       cannot, and its value; of a shared key, what the value of the holder would be
                       whose hold ends last, and how many others hold it; otherwise holders is 0. If the
                       token itself shares a key that the caller wants alone, it is that holder. A shared
                       key without holders blocks only a caller who wants it alone: value is "". The key
                       expires in ms, or never if ms is -1. ahead is how many live waiters are
                       before the caller in the line of KEYS[i]; dead ones may make it too large.
                       waits is what that holder waits for itself, as it has noted lately, or ""
            {i, "", 0, ahead, 0, ""}  no other token holds a key, and KEYS[i] is the first key with live
                       waiters before the caller
            0          nothing blocks the caller any more
Errors      none of its own
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach
local token, modes, ticket = ARGV[1], ARGV[2], ARGV[3]
local n, shares = tonumber(string.match(modes, '^%d+')), nil
-- include shared
-- include note

local now = call('TIME')
now = math.floor((now[1] * 1000000 + now[2]) / 1000)
-- As scores of marks: the longest life there is, 2,047 s, and a second from now on, and now.
local latest, earliest = string.format('%.0f', -(now + 2048000) * 4096), string.format('%.0f', -now * 4096)

local function ahead(i)
	local line = KEYS[n + shares.count + 2 * i - 1]
	local live = line and tonumber(pcall('ZCOUNT', line, latest, earliest)) or 0 -- the key may not be a sorted set
	return live > 0 and call('ZCOUNT', line, 0, ticket == '0' and '+inf' or '(' .. ticket) or 0
end

for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for j = 1, #values do
		local value, i = values[j], first + j - 1
		if value == shares.mark and shares.limit[i] then
			local seen = not shares.wrong(i) and shares.look(i) or { count = 0 }
			local own = seen.ends and shares.limit[i] == 1 -- nobody can lock a key alone that he shares
			if own or seen.count > 0 and not shares.fits(i, seen) then
				local all = shares.holders(i, 2)
				local at = all[1] == token and not own and 4 or 0
				local shown = all[at + 1] .. (all[at + 4] ~= '' and ' ' .. all[at + 4] or '')
				return { i, shown, call('PTTL', KEYS[i]), ahead(i), seen.count + (own and 1 or 0), noteOf(i, shown) }
			elseif seen.count == 0 and shares.limit[i] == 1 then -- somebody has deleted the house
				return { i, '', call('PTTL', KEYS[i]), ahead(i), 0, '' }
			end
		elseif value and value ~= token and string.sub(value, 1, #token + 1) ~= token .. ' ' then
			return { i, value, call('PTTL', KEYS[i]), ahead(i), 0, noteOf(i, value) }
		end
	end
end
for i = 1, (#KEYS - n - shares.count) / 2 do
	local before = ahead(i)
	if before > 0 then
		return { i, '', 0, before, 0, '' }
	end
end
return 0
