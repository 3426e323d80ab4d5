--[[
marker: whether this server may have forgotten locks, and for how long it therefore grants nothing new. Obtain, refresh,
release, inspect and the joint scripts share this text. It is not a script of its own: a Client with a guard puts it into
theirs, in place of the words "include marker", and a Client without one puts nothing there. Before that, they have declared
guard.

After a memory may be lost, the guard is closed until every lease that it can have held has ended. Meanwhile nothing new is
granted, and renewals put the keys of their locks back. Then the guard is open.

The marker is a key beside the locks, and lost with them:
   "‹id› ‹G› ‹D›"           open: nothing has been lost since the term of this id began
   "‹id› ‹G› ‹D› ‹opens›"   closed until opens, in ms of the server's clock
id       master_replid, which is random at each start of the process and at each promotion: a marker
         with the id of today was written by this process, in its present term as a master
G        the longest ttl of any lock, plus D, in ms
D        for how many ms a master that was deposed may go on granting; less than G
         Scripts only ever raise D and the longest ttl, each by itself, and G with them.

KEYS[#KEYS] the marker
ARGV[#ARGV] "‹G› ‹D›"
            Both are removed, so the rest of the script finds KEYS and ARGV as without a guard.

Returns     nothing: it defines guard. guard() closes the guard if the marker does not match. It returns
            closed, id, early: nothing new may be granted for closed ms, and renewals must not be
            executed for early ms, the first D of a closure; both are 0 while the guard is open
Errors      guard() returns one in place of closed, and has written nothing:
            READONLY   this is a replica, even if it is writable
            WRONGTYPE  the marker is not a string
            ERR        the server does not say who it is in INFO replication, or not to this user
]]
do
	local marker, grace = KEYS[#KEYS], ARGV[#ARGV]
	KEYS[#KEYS], ARGV[#ARGV] = nil, nil

	guard = function()
		local info, stored = redis.pcall('INFO', 'replication'), redis.pcall('GET', marker) or ''
		if type(info) == 'table' then
			return redis.error_reply('ERR a guard needs INFO replication (+info in an ACL): ' .. info.err)
		elseif type(stored) == 'table' then
			return redis.error_reply('WRONGTYPE guard marker "' .. marker .. '" is not a string')
		elseif not string.find(info, 'role:master', 1, true) then
			return redis.error_reply('READONLY a replica grants no locks')
		end
		local id = string.sub(stored, 1, 40)
		if string.sub(stored, 42) == grace and string.find(info, 'master_replid:' .. id, 1, true) and #id == 40 then
			return 0, id, 0
		end
		id = string.match(info, 'master_replid:(%w+)')
		if not id then
			return redis.error_reply('ERR INFO replication does not have the master_replid that a guard needs')
		end
		local now = redis.call('TIME')
		now = now[1] * 1000 + math.floor(now[2] / 1000)
		local G, D = string.match(grace, '^(%d+) (%d+)$')
		local before, oldG, oldD, opens = string.match(stored, '^(%w+) (%d+) (%d+) ?(%d*)$')
		oldG, oldD, opens = tonumber(oldG or 0), tonumber(oldD or 0), tonumber(opens or '')
		if oldD >= oldG then
			before, oldG, oldD = nil, 0, 0 -- no script has written this
		end
		local deposed = math.max(oldD, tonumber(D))
		local longest = math.max(oldG - oldD, G - D) + deposed
		if before ~= id then
			opens = now + longest -- a new term, or the marker is lost: locks may be lost as well
		elseif opens then
			opens = opens + longest - oldG -- another program has longer locks than the one that closed the guard
			opens = math.min(opens, now + longest) -- the clock was set back
			opens = opens > now and opens or nil
		end
		local value = id .. string.format(' %.0f %.0f', longest, deposed) .. (opens and string.format(' %.0f', opens) or '')
		local raised = oldG < longest or oldD < deposed
		if value ~= stored and redis.pcall('SET', marker, value).err and (before ~= id or raised) then
			opens = now + longest -- out of memory: the closure cannot begin yet
		end
		local closed = opens and opens - now or 0
		return closed, id, math.max(0, closed - longest + deposed)
	end
end
