--[[
replace: while the guard is closed, deletes the keys of a token, or lets another value have them until the guard opens.
Nobody in line is served: they cannot be granted anything before that.

KEYS[1..n] lock keys
KEYS[n+1]  the marker, as the library's internal/script/marker.lua describes it
ARGV[1]    the token; "" if the keys are free
ARGV[2]    the value to put into the keys, also into those that are gone; "" to delete them

Returns    ms      done; the guard opens in ms
           0       nothing was done, because the marker does not say that the guard is closed
           {i, …}  nothing was done, because KEYS[i] is another's
Errors     those of SET
]]
local token, value = ARGV[1], ARGV[2]
local id, longest, opens = string.match(redis.call('GET', KEYS[#KEYS]) or '', '^(%w+) (%d+) %d+ (%d+)$')
local info = redis.call('INFO', 'replication')
if not id or not string.find(info, 'role:master', 1, true) or string.match(info, 'master_replid:(%w+)') ~= id then
	return 0
end
local now = redis.call('TIME')
local left = math.min(tonumber(opens) - now[1] * 1000 - math.floor(now[2] / 1000), tonumber(longest))
if left <= 0 then
	return 0
end
local others = {}
for i = 1, #KEYS - 1 do
	local stored = redis.pcall('GET', KEYS[i])
	if type(stored) == 'table' or stored and (token == '' or stored ~= token and string.sub(stored, 1, #token + 1) ~= token .. ' ') then
		others[#others + 1] = i
	end
end
if others[1] then
	return others
end
for i = 1, #KEYS - 1 do
	if value == '' then
		redis.call('DEL', KEYS[i])
	else
		redis.call('SET', KEYS[i], value, 'PX', left)
	end
end
return left
