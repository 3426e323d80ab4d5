--[[
inspect: what each key holds, for how long, and who waits for it.

KEYS[1..n]  keys
KEYS[…]     the lines, as line.lua describes them, of the first keys, one for each; maybe none
ARGV[1]     n

Returns     {value, ms, waiters, since, value, ms, waiters, since, …}  for each key in order:
            value    nil where there is no such key, or where it is not a string
            ms       the remaining ttl; -1 for a key without expiry, -2 for no such key
            waiters  how many live waiters its line has; 0 for a key without a line
            since    the ticket of the first of them; 0 for none
Errors      none of its own
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach
local n = tonumber(ARGV[1])

local now = call('TIME')
now = math.floor((now[1] * 1000000 + now[2]) / 1000)
-- As scores of marks: the longest life there is, 2,047 s, and a second from now on, and now.
local latest, earliest = string.format('%.0f', -(now + 2048000) * 4096), string.format('%.0f', -now * 4096)

local function isLive(mark)
	local left = math.floor(-mark / 4096) - now
	return left >= 0 and left <= math.floor(-mark % 4096 / 2) * 1000 + 1000
end

-- firstTicket returns the ticket of the first live waiter of a line with so many of them, 0 for none. The dead stay in a line
-- until somebody takes part in it, so the first live waiter is among the first dead + 1 (and further back where a clock
-- has jumped). Where the live are fewer than the dead, their marks are read first, and the entries then need no look at theirs.
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
