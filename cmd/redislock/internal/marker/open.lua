--[[
open: opens the guard, because somebody says that nothing was lost.

KEYS[1]  the marker
ARGV[1]  the marker as it was when they said so; "" for none
ARGV[2]  the id of the server's term at that time
ARGV[3]  the new marker

Returns  1  the guard is open
         0  nothing was written, because the marker or the term is another one by now
Errors   READONLY  this is a replica, even if it is writable
]]
local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then
	return redis.error_reply('READONLY a replica grants no locks')
end
local stored = redis.call('GET', KEYS[1]) or ''
if stored ~= ARGV[1] or string.match(info, 'master_replid:(%w+)') ~= ARGV[2] then
	return 0
end
redis.call('SET', KEYS[1], ARGV[3])
return 1
