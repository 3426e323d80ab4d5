--[[
inspect: what each key holds, how long it lasts, and how many wait for it.

KEYS[1..n]  keys
KEYS[n+1…]  the houses of all keys that can have one; see shared.lua
KEYS[…]     the lines, as line.lua describes them, of the first of the keys in order; may be none
ARGV[1]     modes, as shared.lua describes it, with all keys that can have a house
ARGV[2]     "1" to ask only while the guard is open; else "0" or missing
ARGV[3]     the token of a holder who is shown first; "" or missing for none

Returns     {value, ms, waiters, since, value, ms, waiters, since, …}  for each key in order:
            value    nil if the key does not exist or is not a string. If it is shared:
                     {count, token, ms, limit, metadata, token, …}: how many hold it, and up to 100 of
                     them, those who hold it for longest first; limit is 0 for none
            ms       the remaining ttl; -1 for a key without expiry, -2 if the key does not exist
            waiters  how many live waiters its line has; 0 for a key without a line
            since    the ticket of the first of them; 0 if there is none
            {-2, closed, id}  the guard is closed for closed ms; see marker.lua
Errors      those of marker.lua, if ARGV[2] is "1"
]]
local CHUNK = 2000 -- keys per command: Lua unpacks at most 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster than globals

local guard -- see marker.lua; nil without a guard
-- include marker
if guard and ARGV[2] == '1' then
	local closed, term = guard()
	if closed ~= 0 then
		return type(closed) == 'table' and closed or { -2, closed, term }
	end
end

local modes, token = ARGV[1], ARGV[3] or ''
local n, shares = tonumber(string.match(modes, '^%d+')), nil
-- include shared

local now = call('TIME')
now = math.floor((now[1] * 1000000 + now[2]) / 1000)

-- waiting returns how many live waiters a line has, and the ticket of the first of them. Dead ones stay in a line until
-- obtain, release or beat looks at it.
local function waiting(line)
	local live, count, first = {}, 0, nil
	local marks = pcall('ZRANGEBYSCORE', line, '-inf', '-3.8e15', 'WITHSCORES') -- the key may not be a sorted set
	for i = 1, #marks, 2 do
		local left = math.floor(-marks[i + 1] / 4096) - now
		live[string.sub(marks[i], 2)] = left >= 0 and left <= math.floor(-marks[i + 1] % 4096 / 2) * 1000 + 1000
	end
	local at, found = 0, marks -- without marks, nobody is live
	while found[1] do
		found = call('ZRANGEBYSCORE', line, 0, '+inf', 'LIMIT', at, CHUNK)
		for i = 1, #found do
			if live[string.match(found[i], '^[^ /]*')] then
				count = count + 1
				first = first or found[i]
			end
		end
		if not found[CHUNK] then
			break
		end
		at = at + CHUNK
	end
	return count, first and tonumber(call('ZSCORE', line, first)) or 0
end

local held = {}
for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for i = 1, #values do
		local index = first + i - 1
		local line, waiters, since = KEYS[n + shares.count + index], 0, 0
		if values[i] == shares.mark and shares.limit[index] and not shares.wrong(index) then
			values[i] = shares.holders(index, 100)
			table.insert(values[i], 1, shares.holderCount(index))
		end
		if line then
			waiters, since = waiting(line)
		end
		held[#held + 1] = values[i]
		held[#held + 1] = call('PTTL', KEYS[index])
		held[#held + 1] = waiters
		held[#held + 1] = since
	end
end
return held
