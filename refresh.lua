--[[
refresh: gives every key of one lock a new ttl, or changes nothing.

KEYS[1..n]  lock keys
KEYS[n+1…]  the houses of the keys that several may hold, if there are such keys; see
            internal/script/shared.lua
ARGV[1]     token
ARGV[2]     ttl in whole milliseconds
ARGV[3]     new metadata; "" leaves each value as it is
ARGV[4]     "1" never brings an expiry forward: a key that lasts longer than the ttl is left
            alone, however late the script runs; else "0"
ARGV[5]     the metadata of keys that are put back, if ARGV[3] is ""; may be missing without a guard
ARGV[6]     modes, as shared.lua describes it, if several may hold some of the keys; else missing

A key without expiry gets the ttl, because nobody would free it if its holder died.

Returns     0       every key is mine and has the new ttl, or a longer one
            {i, …}  nothing was written: KEYS[i] is another's, or for a negative
                    i KEYS[-i] is gone
            While the guard is closed, for closed ms; see internal/script/marker.lua:
            {0, closed, id, i, …}  every key is mine and has the new ttl; KEYS[i] … were gone and are
                    put back. If another has one, none is put back, and the reply is as above. Those
                    who hold a key together come back beside each other, up to their limits
            {0, closed, id, -ms}  nothing was done, because the guard has just closed: call again
                    after ms
Errors      ERR     the ttl is not a whole number above 0; nothing was written
            Those of marker.lua, and those of a SET that Redis refuses; no key is put back then
]]
local CHUNK = 2000 -- keys a command: Lua unpacks 7,999 values in Redis, 5,114 in miniredis

local KEYS, call, pcall = KEYS, redis.call, redis.pcall -- locals are faster to reach
local token, ttl, metadata, prolongs = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

if not string.find(ttl, '^[1-9]%d*$') then -- PEXPIRE deletes a key at 0
	return redis.error_reply('ERR ttl ' .. ttl .. ' is not a whole number of milliseconds above 0')
end

local guard, closed, term, early = nil, 0, nil, 0 -- see marker.lua; without a guard they stay as they are
-- include marker
if guard then
	closed, term, early = guard()
	if type(closed) == 'table' then
		return closed
	elseif early > 0 then
		return { 0, closed, term, -early }
	end
end

local n, shares = #KEYS, nil -- see shared.lua; nil if all keys are exclusive
if ARGV[6] then
	local modes = ARGV[6]
	n = tonumber(string.match(modes, '^%d+'))
	-- include shared
end

local lost, taken -- what to return, if not 0; whether another holder has a key
local ends, beside, created = {}, {}, {} -- by index: when my hold of a shared key ends; how a lost one is put back: beside
-- others whose last hold ends then, or as the only one
local fresh = {} -- by index: what was put back
for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for i = 1, #values do
		local index, stored = first + i - 1, values[i]
		if not stored and pcall('EXISTS', KEYS[index]) == 0 then
			lost = lost or {}
			lost[#lost + 1] = -index
		elseif shares and stored == shares.mark and shares.limit[index] then
			ends[index] = shares.endOf(index)
			if not ends[index] then
				lost = lost or {}
				lost[#lost + 1] = -index
				if closed > 0 and shares.wrong(index) then
					taken = true
				elseif closed > 0 then
					local seen = shares.look(index)
					beside[index], taken = seen.last, taken or not shares.fits(index, seen)
				end
			end
		elseif not stored or stored ~= token and string.sub(stored, 1, #token + 1) ~= token .. ' ' then
			lost, taken = lost or {}, true
			lost[#lost + 1] = index
		end
	end
end
if lost and (taken or closed == 0) then
	return lost
end

local back = closed > 0 and { 0, closed, term } or 0 -- what to return; the indices of keys that are put back follow
for i = 1, lost and #lost or 0 do
	local kept, index, done = metadata == '' and ARGV[5] or metadata, -lost[i], nil
	if beside[index] then
		done = shares.hold(index, shares.now + ttl, shares.limit[index], kept, beside[index])
	elseif shares and shares.limit[index] then
		created[index] = true
		done = shares.create(index, tonumber(ttl), kept)
	else
		done = pcall('SET', KEYS[index], kept == '' and token or token .. ' ' .. kept, 'PX', ttl)
	end
	if done and done.err then
		for j = 1, i do
			local at = -lost[j]
			if beside[at] or created[at] then
				shares.undo(at, created[at])
			end
			if not beside[at] and (j < i or created[at]) then
				pcall('DEL', KEYS[at])
			end
		end
		return done
	end
	back[#back + 1] = index
	fresh[index] = true
end

if metadata ~= '' and not prolongs and not lost and not ends[1] then
	-- A Redis that is out of memory refuses SET, but not in a script that has already written. Nobody should lose a lock
	-- because of a few bytes of metadata.
	call('PEXPIRE', KEYS[1], ttl)
end
for i = 1, n do
	if ends[i] then
		local done = shares.renew(i, math.max(shares.now + ttl, prolongs and ends[i] or 0), not prolongs and metadata)
		if done then
			return done
		end
	elseif fresh[i] then
		-- it has just got its ttl, after which nothing looks at it: see shared.lua
	elseif prolongs and call('PTTL', KEYS[i]) >= tonumber(ttl) then
		-- the key lasts longer than it would now: leave it. Without expiry, PTTL is -1
	elseif metadata == '' then
		call('PEXPIRE', KEYS[i], ttl)
	else
		call('SET', KEYS[i], token .. ' ' .. metadata, 'PX', ttl)
	end
end
return back
