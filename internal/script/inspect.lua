--[[
inspect: what each key holds, how long it lasts, and how many wait for it. It changes nothing, but may leave a note.

KEYS[1..n]  keys
KEYS[n+1…]  the houses of all keys that can have one; see shared.lua
KEYS[…]     for the first of the keys in order, the line and the note, as line.lua and note.lua describe them; may be none
ARGV[1]     modes, as shared.lua describes it, with all keys that can have a house
ARGV[2]     "1" to ask only while the guard is open; else "0" or missing
ARGV[3]     the token of a holder who is shown first; "" or missing for none
ARGV[4]     how many waiters to show of each line; 0 or missing for none
ARGV[5]     a ticket, to look only at waiters with lower ones, and at no more than 10,000 of them in all lines together.
            If the key is exclusive, those are left out that name nothing, before the first one that would share it;
            missing to look at all waiters
ARGV[6]     names for notes: what the caller waits for; may be missing
ARGV[6+index]  then, for the key with that index, the token with which the caller holds it, to leave a note if the
            line has live waiters; "" for none. It does not matter if Redis refuses to write it

Returns     {value, ms, waiters, since, shown, waits, value, ms, …}  for each key in order:
            value    nil if the key does not exist or is not a string. If it is shared:
                     {count, token, ms, limit, metadata, token, …}: how many hold it, and up to 100 of
                     them, those who hold it for longest first; limit is 0 for none
            ms       the remaining ttl; -1 for a key without expiry, -2 if the key does not exist
            waiters  how many live waiters its line has; 0 for a key without a line
            since    the ticket of the first of them; 0 if there is none
            shown    {entry, ticket, late, limit, …}: the first of them; late is 1 if the inbox has been silent for
                     two of its three intervals; limit is how many holders it would let the key have, and 0 for no limit
            waits    what the holder waits for itself, as it has noted lately; "" if nothing is known
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

local modes, token = ARGV[1], ARGV[3] or ''
local n, shares = tonumber(string.match(modes, '^%d+')), nil
-- include shared
-- include note

local now = call('TIME')
now = math.floor((now[1] * 1000000 + now[2]) / 1000)

local most, below = tonumber(ARGV[4] or 0), ARGV[5]
local budget = below and 10000 or math.huge -- waiters to look at: those who search for a circle come again and again

-- limitOf returns how many holders a waiter would let the key of a line have; see line.lua.
local function limitOf(line, entry)
	local id = string.match(entry, '^(%S+) 00 ')
	local score = id and tonumber(call('ZSCORE', line, '=' .. id) or -1) or -1
	return score < -1000000 and 0 or -score
end

-- waiting returns how many live waiters a line has, the ticket of the first of them, and what to show of the first ones. joint
-- says that several may hold the key. It also returns whether anybody lives there, whatever ticket he has. Dead ones stay in
-- a line until obtain, release or beat looks at it.
local function waiting(line, joint)
	local live, late, shown, count, first = {}, {}, {}, 0, nil
	local marks = pcall('ZRANGEBYSCORE', line, '-inf', '-3.8e15', 'WITHSCORES') -- the key may not be a sorted set
	for i = 1, #marks, 2 do
		local inbox, life = string.sub(marks[i], 2), math.floor(-marks[i + 1] % 4096 / 2) * 1000
		local left = math.floor(-marks[i + 1] / 4096) - now
		live[inbox], late[inbox] = left >= 0 and left <= life + 1000, left < life / 3 and 1 or 0
	end
	local at, found = 0, marks -- without marks, nobody is live
	while found[1] and budget > 0 and not (below and #shown >= most * 4) do
		local size = math.min(CHUNK, budget)
		found = call('ZRANGEBYSCORE', line, 0, below and '(' .. below or '+inf', 'LIMIT', at, size)
		budget = budget - #found
		for i = 1, #found do
			local entry = found[i]
			local inbox = string.match(entry, '^[^ /]*')
			if live[inbox] then
				count = count + 1
				first = first or entry
				joint = joint or string.find(entry, '^%S+ 00 ')
				if #shown < most * 4 and (not below or joint or string.find(entry, '^%S+ %d+ %d+ %d+%+')) then
					shown[#shown + 1] = entry
					shown[#shown + 1] = tonumber(call('ZSCORE', line, entry))
					shown[#shown + 1] = late[inbox]
					shown[#shown + 1] = limitOf(line, entry)
				end
			end
		end
		if not found[size] then
			break
		end
		at = at + size
	end
	return count, first and tonumber(call('ZSCORE', line, first)) or 0, shown, next(live) ~= nil
end

local held = {}
for first = 1, n, CHUNK do
	local values = call('MGET', unpack(KEYS, first, math.min(first + CHUNK - 1, n)))
	for i = 1, #values do
		local index = first + i - 1
		local line, waiters, since, shown = KEYS[n + shares.count + 2 * index - 1], 0, 0, {}
		local holder, waits = values[i] or '', ''
		if values[i] == shares.mark and shares.limit[index] and not shares.wrong(index) then
			values[i] = shares.holders(index, 100)
			holder = values[i][1] or ''
			table.insert(values[i], 1, shares.holderCount(index))
		end
		if line then
			local lives
			waiters, since, shown, lives = waiting(line, type(values[i]) == 'table')
			waits = waiters > 0 and not below and noteOf(index, holder) or ''
			if lives and (ARGV[6 + index] or '') ~= '' then
				pcall('SET', KEYS[n + shares.count + 2 * index], ARGV[6 + index] .. ' ' .. ARGV[6], 'PX', 6000)
			end
		end
		held[#held + 1] = values[i]
		held[#held + 1] = call('PTTL', KEYS[index])
		held[#held + 1] = waiters
		held[#held + 1] = since
		held[#held + 1] = shown
		held[#held + 1] = waits
	end
end
return held
