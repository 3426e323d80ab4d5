--[[
inspect: what each key holds, for how long, and who waits for it.

KEYS[1..n]  keys
KEYS[…]     the lines, as obtain.lua describes them, of the first keys, one for each; maybe none
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

local LIFE, AHEAD = 3000000, 1000000 -- how long a waiter is live, and how far clocks may jump, in µs
local now = call('TIME')
now = now[1] * 1000000 + now[2]
local earliest, latest = string.format('%.0f', LIFE - now), string.format('%.0f', -now - AHEAD) -- as scores

local held = {}
for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for i = 1, #values do
		local line, waiters, since = KEYS[n + first + i - 1], 0, 0
		if line then
			waiters = tonumber(pcall('ZCOUNT', line, latest, earliest)) or 0
		end
		if waiters > 0 then
			-- The dead stay in a line until somebody takes part in it. The first live waiter is among the first dead + 1,
			-- and among the live. The script looks at whichever are fewer.
			local dead = call('ZCOUNT', line, 0, '+inf') - waiters
			if dead < waiters then
				local front = call('ZRANGEBYSCORE', line, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, dead + 1)
				for at = 1, #front, 2 do
					local heard = tonumber(call('ZSCORE', line, '~' .. front[at]) or 0)
					if heard >= tonumber(latest) and heard <= tonumber(earliest) then
						since = tonumber(front[at + 1])
						break
					end
				end
			else
				local live = call('ZRANGEBYSCORE', line, latest, earliest)
				for at = 1, #live do
					local ticket = tonumber(call('ZSCORE', line, string.sub(live[at], 2)) or 0)
					since = at == 1 and ticket or math.min(since, ticket)
				end
			end
		end
		held[#held + 1] = values[i]
		held[#held + 1] = call('PTTL', KEYS[first + i - 1])
		held[#held + 1] = waiters
		held[#held + 1] = since
	end
end
return held
