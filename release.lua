--[[
release: deletes every key of one lock that is still mine, whatever became of the others, takes a waiter out of the
lines of the keys, and wakes those who are first there now.

KEYS[1..n]  lock keys; there may be none, for a waiter that only leaves
KEYS[…]     lines, as obtain.lua describes them; none: nobody is woken
ARGV[1]     token
ARGV[2]     n
ARGV[3]     id of a waiter that leaves the lines; none: nobody does

Returns     0       every key was mine and is deleted
            {i, …}  KEYS[i] is another's, or for a negative i KEYS[-i] was gone;
                    every other key was mine and is deleted
Publishes   the number of the first live waiter of each line to redislock:inbox:‹inbox›,
            once each, if there are lock keys or if the one before it has left or was dead;
            and of the second live one if the first has not been heard of for 2 s. One call
            removes about 10,000 dead waiters at most, and does not look behind those it leaves
Errors      none of its own; what Redis refuses to do about the lines is left undone
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach
local token, n, id = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local first = 1 -- key to be looked at
if n == 1 and pcall('GET', KEYS[1]) == token then -- most locks are one key; GET says nothing about those of other types
	call('DEL', KEYS[1])
	if #KEYS == 2 and pcall('EXISTS', KEYS[2]) == 0 then
		return 0
	end
	first = 2
end

local lost -- what to return, if not 0
for first = first, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	local mine, count = {}, 0
	for i = 1, #values do
		local index, stored = first + i - 1, values[i]
		if stored and (stored == token or string.sub(stored, 1, #token + 1) == token .. ' ') then
			count = count + 1
			mine[count] = KEYS[index]
		elseif not stored and pcall('EXISTS', KEYS[index]) == 0 then
			lost = lost or {}
			lost[#lost + 1] = -index
		else
			lost = lost or {}
			lost[#lost + 1] = index
		end
	end
	if count > 0 then
		call('DEL', unpack(mine))
	end
end

local queued = false -- somebody has a place in one of the lines
for first = n + 1, #KEYS, CHUNK do
	local found = pcall('EXISTS', unpack(KEYS, first, math.min(first + CHUNK - 1, #KEYS)))
	queued = queued or found ~= 0
end
if not queued then
	return lost or 0
end

local LIFE, AHEAD = 3000000, 1000000 -- how long a waiter is live, and how far clocks may jump, in µs
local SILENT = 2000000 -- a waiter not heard of for so long, in µs, is likely dead
local now = pcall('TIME')
if now.err then
	return lost or 0
end
now = now[1] * 1000000 + now[2]

local woken = {}
local room = 10000 -- how many dead waiters to remove at most: that takes about 20 ms, in which Redis serves nobody else
for i = n + 1, #KEYS do
	local line, moved = KEYS[i], n > 0
	local live, size = 0, 1 -- live waiters seen, which stay in front of what is read next; and how many to read at once
	repeat
		local front = pcall('ZRANGEBYSCORE', line, 0, '+inf', 'LIMIT', live, size)
		local dead, more = {}, #front == size
		for _, waiter in ipairs(front) do
			local heard = pcall('ZSCORE', line, '~' .. waiter)
			heard = type(heard) == 'string' and -heard or 0
			if waiter == id or heard < now - LIFE or heard > now + AHEAD then
				dead[#dead + 1], dead[#dead + 2] = waiter, '~' .. waiter
				moved = true
			else
				if moved and not woken[waiter] then
					woken[waiter] = true
					local inbox, number = string.match(waiter, '^(.*)/(.*)$')
					pcall('PUBLISH', 'redislock:inbox:' .. inbox, number)
				end
				live = live + 1
				if not moved or live == 2 or heard >= now - SILENT then
					more = false
					break
				end
				-- The first is likely dead. The second is woken too: its try tells it when the first will be dead for certain.
			end
		end
		if dead[1] and room > 0 then
			room = room - #dead / 2
			if type(pcall('ZREM', line, unpack(dead))) == 'table' then -- an ACL may forbid it
				more = false
			end
		end
		size = math.max(math.min(size * 4, CHUNK / 2, room), 1)
	until not more or dead[1] and room <= 0
	if id then
		pcall('ZREM', line, id, '~' .. id)
	end
end
return lost or 0
