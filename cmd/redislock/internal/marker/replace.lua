--[[
replace: while the guard is closed, deletes the keys of a token, or lets another value have them until the guard opens.
Nobody in line is served: they cannot be granted anything before that.

KEYS[1..n] lock keys
KEYS[n+1…] the house of each of them, as the library's internal/script/shared.lua describes it; the key
           itself if it can have none
KEYS[2n+1] the marker, as the library's internal/script/marker.lua describes it
ARGV[1]    the token; "" if the keys are free
ARGV[2]    the value to put into the keys, also into those that are gone; "" to delete them

Returns    ms      done; the guard opens in ms
           0       nothing was done, because the marker does not say that the guard is closed
           {i, …}  nothing was done, because KEYS[i] is another's
Errors     those of SET
]]
local token, value = ARGV[1], ARGV[2]
local n = (#KEYS - 1) / 2
local id, longest, opens = string.match(redis.call('GET', KEYS[#KEYS]) or '', '^(%w+) (%d+) %d+ (%d+)$')
local info = redis.call('INFO', 'replication')
if not id or not string.find(info, 'role:master', 1, true) or string.match(info, 'master_replid:(%w+)') ~= id then
	return 0
end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local left = math.min(tonumber(opens) - now, tonumber(longest))
if left <= 0 then
	return 0
end
-- isMine reports whether the token has a key that holds that.
local function isMine(i, stored)
	if stored == ' redislock:shared' then
		local ends = token ~= '' and redis.pcall('ZSCORE', KEYS[n + i], token)
		return ends and tonumber(ends) and tonumber(ends) > now
	end
	return token ~= '' and (stored == token or string.sub(stored, 1, #token + 1) == token .. ' ')
end
local others, shared = {}, {}
for i = 1, n do
	local stored = redis.pcall('GET', KEYS[i])
	if type(stored) == 'table' or stored and not isMine(i, stored) then
		others[#others + 1] = i
	end
	shared[i] = stored == ' redislock:shared'
end
if others[1] then
	return others
end
-- leave takes the token out of the holders of a key. The key and its house end with the last of the other holds.
local function leave(key, house)
	local score = string.format('%.0f', -1 - tonumber(string.sub(redis.sha1hex(token), 1, 12), 16))
	redis.call('ZREM', house, token, 'limit ' .. token)
	redis.call('ZREMRANGEBYSCORE', house, score, score)
	local last = tonumber(redis.call('ZREVRANGE', house, 0, 0, 'WITHSCORES')[2] or 0)
	if last <= now then
		redis.call('DEL', key, house)
		return
	end
	redis.call('PEXPIREAT', house, string.format('%.0f', last))
	redis.call('PEXPIREAT', key, string.format('%.0f', last))
end
for i = 1, n do
	if shared[i] and value == '' then
		leave(KEYS[i], KEYS[n + i])
	elseif value == '' then
		redis.call('DEL', KEYS[i])
	else
		redis.call('SET', KEYS[i], value, 'PX', left)
		if KEYS[n + i] ~= KEYS[i] then
			redis.call('DEL', KEYS[n + i])
		end
	end
end
return left
