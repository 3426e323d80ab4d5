--[[
inspect: what each key holds, how long it lasts, and how many wait for it.

KEYS[1..n]  keys
KEYS[…]     the lines, as line.lua describes them, of the first of the keys in order; may be none
ARGV[1]     n
ARGV[2]     "1" to ask only while the guard is open; else "0" or missing

Returns     {value, ms, waiters, since, value, ms, waiters, since, …}  for each key in order:
            value    nil if the key does not exist or is not a string
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

local n = tonumber(ARGV[1])

local now = call('TIME')
now = math.floor((now[1] * 1000000 + now[2]) / 1000)
-- Scores of marks with the latest possible deadline (the longest life, 2,047 s, plus a second from now) and with now.
local latest, earliest = string.format('%.0f', -(now + 2048000) * 4096), string.format('%.0f', -now * 4096)

local function isLive(mark)
	local left = math.floor(-mark / 4096) - now
	return left >= 0 and left <= math.floor(-mark % 4096 / 2) * 1000 + 1000
end

-- firstTicket returns the ticket of the first live waiter in a line with so many live waiters, or 0 if there is none. Dead
-- waiters stay in a line until obtain or release looks at it. The first live waiter is among the first dead + 1 entries, or
-- further back if a clock has jumped. If fewer are live than dead, the script reads the marks of the live ones first, and
-- then needs no mark for each entry.
local function firstTicket(line, waiters)
	local dead, live = call('ZCOUNT', line, 0, '+inf') - waiters, nil
	if dead >= waiters then
		live = {}
		local marks = call('ZRANGEBYSCORE', line, latest, earliest, 'WITHSCORES')
		for i = 1, #marks, 2 do
			live[marks[i]] = isLive(tonumber(marks[i + 1]))
		end
	end
	local at, size = 0, math.min(dead + 1, CHUNK)
	repeat
		local found = call('ZRANGEBYSCORE', line, 0, '+inf', 'WITHSCORES', 'LIMIT', at, size)
		for i = 1, #found, 2 do
			local mark = '~' .. (string.match(found[i], '^%S*') or '')
			if live and live[mark] or not live and isLive(tonumber(call('ZSCORE', line, mark) or 0)) then
				return tonumber(found[i + 1])
			end
		end
		at, size = at + size, CHUNK
	until not found[1]
	return 0
end

local held = {}
for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for i = 1, #values do
		local line, waiters, since = KEYS[n + first + i - 1], 0, 0
		if line then
			waiters = tonumber(pcall('ZCOUNT', line, latest, earliest)) or 0
		end
		if waiters > 0 then
			since = firstTicket(line, waiters)
		end
		held[#held + 1] = values[i]
		held[#held + 1] = call('PTTL', KEYS[first + i - 1])
		held[#held + 1] = waiters
		held[#held + 1] = since
	end
end
return held
