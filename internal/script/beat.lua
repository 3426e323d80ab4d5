--[[
beat: keeps the waiters of one inbox live in some of their lines, and looks who is first there.

KEYS[1..n]    lock keys
KEYS[n+1..2n] their lines, as line.lua describes them
ARGV[1]       the inbox
ARGV[2]       for how many whole seconds its waiters are live from now on
ARGV[3]       a sum, as for obtain: 1 if its subscription is open, on this server; 2 counts for nothing here
ARGV[4]       "1" to make the lines last as well; else "0"
ARGV[i]       from the fifth on: ids of waiters of the inbox that have left; those that are first in
              a line are removed

Returns     {time, listeners, silent, {i, …}, {number, lines, ms, …}}
            time       in µs
            listeners  how many connections to this server listen to the inbox; -1 if nobody can tell
            silent     in how many ms the first mark ends of another inbox whose waiter is first in a line;
                       0 if there are more dead ones than one call removes; -1 if there is none
            {i, …}     in line KEYS[n+i], the inbox has no mark, or one that had ended long ago
            {number, lines, ms, …}  each waiter of the inbox that is first in a line: in how many lines it
                       is so whose keys are free by now or within a third of the life, and when the
                       last of these is. A key that it would share with those who hold it counts as free
            A line that is not a sorted set is left out.
Publishes   to redislock:inbox:‹inbox›, once for each waiter of another inbox: its number, if it is
            the first live one of a line from which waiters were removed, or can share the key with that one;
            and the first eight who can share a key, if one of this inbox is the first and the key may have
            room. They may be of this inbox
Errors      those of the first ZSCORE or ZADD that Redis refuses
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.pcall, redis.pcall -- locals are faster to reach
local inbox, life, n = ARGV[1], tonumber(ARGV[2]), #KEYS / 2
local lefts = {}
for i = 5, #ARGV do
	lefts[ARGV[i]] = true
end
local now = call('TIME')
now = now[1] * 1000000 + now[2]
local most = 10000 -- waiters to pass over: so many take about 20 ms, in which Redis serves nobody else
-- include line

local mark = marking(inbox, life, tonumber(ARGV[3]))
local silent, missing = -1, {}
local firsts, found = {}, {} -- the waiters of this inbox that are first in a line, in order; by number
for i = 1, n do
	local line = KEYS[n + i]
	local old = call('ZSCORE', line, mark.member)
	local ended = type(old) == 'string' and hasEnded(old)
	local refused = type(old) == 'string' and not ended and call('ZADD', line, mark.score, mark.member) or old
	if type(refused) == 'table' then
		if not string.find(refused.err, '^WRONGTYPE') then
			return refused
		end
	elseif type(old) ~= 'string' or ended then
		missing[#missing + 1] = i
		if ended then
			call('ZREM', line, mark.member)
		end
	else
		if ARGV[4] == '1' and (tonumber(call('PTTL', line)) or 0) < lineLasts(life) then
			call('PEXPIRE', line, lineLasts(life))
		end
		marks, marked = { [inbox] = -tonumber(mark.score) }, line
		local waiter, removed, out
		repeat
			waiter, out = first(line)
			removed = removed or out
			local left = waiter and lefts[waiter.id]
			if left then
				removed = true
				left = call('ZREM', line, waiter.entry) == 1
				forget(line, { waiter.entry })
			end
		until not left and (not waiter or not removed or waiter.inbox == inbox or tell(waiter, ''))
		if waiter and removed and limitOf(line, waiter) > 1 then
			wake(line, 0, math.huge, 10000)
		end
		if waiter and waiter.inbox ~= inbox then
			silent = (silent < 0 or waiter.left < silent) and waiter.left or silent
		elseif waiter then
			local number = string.sub(waiter.id, #inbox + 2)
			local at = found[number]
			if not at then
				at = { lines = 0, ms = 0 }
				firsts[#firsts + 1], found[number] = number, at
			end
			local left = tonumber(call('PTTL', KEYS[i])) or -1
			local shares = limitOf(line, waiter) > 1
			if shares and call('GET', KEYS[i]) == ' redislock:shared' then
				left = 0 -- only obtain can tell whether there is room for it
			end
			if left ~= -1 and left < life * 1000 / 3 then
				at.lines, at.ms = at.lines + 1, math.max(at.ms, left)
				if shares then -- the first one may be stuck on another key, and nobody tells those behind it when a hold just ends
					wake(line, 0, math.huge, 8)
				end
			end
		end
	end
end
if most <= 0 then
	silent = 0
end
local served = {}
for i = 1, #firsts do
	local at = found[firsts[i]]
	served[3 * i - 2], served[3 * i - 1], served[3 * i] = firsts[i], at.lines, at.ms
end
local listeners = call('PUBSUB', 'NUMSUB', 'redislock:inbox:' .. inbox)
return { now, tonumber(listeners[2]) or -1, silent, missing, served }
