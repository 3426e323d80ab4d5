--[[
shared: keys that several tokens may hold at the same time. All scripts share this text that look at lock keys. It is not a
script of its own: the library puts it into theirs, in place of the words "include shared", where they have found that some
of their keys are so. Before that, they have declared shares, and set token, n (how many lock keys there are), modes and
CHUNK.

A holder says how many holders its key may have, itself included: its limit. 1 is an exclusive lock, which is a string with
its token as ever. Otherwise the key is the string " redislock:shared", which no token can equal, and a sorted set beside it,
its house, has these members for each holder:
   ‹token›                     when its hold ends, in ms of the server's clock
   limit ‹token›               its limit - 2^53, if it has one
   meta ‹token› ‹metadata›     minus a hash of the token, if it has metadata
The key and its house expire when the last of these holds ends. A key without a house has no holder. A hold that has ended is
no hold, whether or not it has been removed.

KEYS[n+1…]  the houses of those keys, in their order
ARGV        none
modes       "‹n›" and " ‹i›=‹N›" for each such KEYS[i], in order; N is the limit, 0 for none

Returns     nothing: it defines shares
Errors      none of its own
]]
do
	local call, pcall = redis.call, redis.pcall
	local NONE, LOWEST, HIGHEST = math.huge, '-9007199254740992', '-4503599627370496' -- no limit; the scores of limits
	local now = call('TIME')
	now = now[1] * 1000 + math.floor(now[2] / 1000)
	local today = string.format('%.0f', now)

	-- mark is what a shared key holds. limit is by the index of the key. The scripts set joined: what look has said.
	shares = { mark = ' redislock:shared', now = now, limit = {}, count = 0, joined = {} }
	local houses = {} -- by the index of the key
	for i, limit in string.gmatch(modes, ' (%d+)=(%d+)') do
		shares.count = shares.count + 1
		shares.limit[tonumber(i)] = limit == '0' and NONE or tonumber(limit)
		houses[tonumber(i)] = KEYS[n + shares.count]
	end

	local function metaScore(holder)
		return string.format('%.0f', -1 - tonumber(string.sub(redis.sha1hex(holder), 1, 12), 16))
	end

	local function drop(house, holder)
		local score = metaScore(holder)
		call('ZREM', house, holder, 'limit ' .. holder)
		call('ZREMRANGEBYSCORE', house, score, score)
	end

	-- lastEnd returns when the last hold in a house ends, in ms; 0 if it has none.
	local function lastEnd(house) return tonumber(call('ZREVRANGE', house, 0, 0, 'WITHSCORES')[2] or 0) end

	-- endOf returns when my hold of a key ends, in ms; nil if I have none.
	function shares.endOf(i)
		local ends = tonumber(pcall('ZSCORE', houses[i], token) or 0) -- nil for an error
		return ends and ends > now and ends or nil
	end

	-- soonest returns in how many ms the first hold of a key ends.
	function shares.soonest(i)
		local next = call('ZRANGEBYSCORE', houses[i], '(' .. today, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
		return next[2] and tonumber(next[2]) - now or 0
	end

	-- wrong returns an error if a house is of another type.
	function shares.wrong(i)
		local kind = call('TYPE', houses[i]).ok
		if kind ~= 'none' and kind ~= 'zset' then
			return redis.error_reply('WRONGTYPE "' .. houses[i] .. '" holds a ' .. kind .. ', not the holders of a lock')
		end
	end

	-- look returns what is known of a key that is held: how many others hold it (count), the least of their limits (least),
	-- when my hold ends (ends; nil for none), and its limit (own). It removes holds that have ended, unless keeps is set.
	function shares.look(i, keeps)
		local house, skip = houses[i], 0
		for _, ended in ipairs(keeps and {} or call('ZRANGEBYSCORE', house, '0', today, 'LIMIT', 0, 64)) do
			drop(house, ended)
		end
		local seen = { ends = shares.endOf(i), least = NONE, own = NONE }
		seen.count = call('ZCOUNT', house, '(' .. today, '+inf') - (seen.ends and 1 or 0)
		repeat
			local found = call('ZRANGEBYSCORE', house, LOWEST, HIGHEST, 'WITHSCORES', 'LIMIT', skip, 1)
			local holder = found[1] and string.sub(found[1], 7)
			local ended = holder and tonumber(call('ZSCORE', house, holder) or 0) <= now
			if holder == token and seen.ends then
				seen.own, skip = tonumber(found[2]) + 9007199254740992, skip + 1
			elseif ended and keeps then
				skip = skip + 1
			elseif ended then
				drop(house, holder)
			elseif holder then
				seen.least = tonumber(found[2]) + 9007199254740992
			end
		until not holder or seen.least < NONE
		return seen
	end

	-- holders returns who holds a key, the longest first, but I before all others, if I do: for each its token, for how many ms,
	-- its limit (0 for none) and its metadata. It returns no more than most of them.
	function shares.holders(i, most)
		local house, all, own = houses[i], {}, shares.endOf(i)
		local found = call('ZREVRANGEBYSCORE', house, '+inf', '(' .. today, 'WITHSCORES', 'LIMIT', 0, most)
		if own then
			table.insert(found, 1, own)
			table.insert(found, 1, token)
		end
		for j = 1, #found, 2 do
			local holder = found[j]
			if j == 1 or not own or holder ~= token and #all < 4 * most then
				local score, metadata = metaScore(holder), ''
				for _, member in ipairs(call('ZRANGEBYSCORE', house, score, score)) do
					if string.sub(member, 1, #holder + 6) == 'meta ' .. holder .. ' ' then
						metadata = string.sub(member, #holder + 7)
					end
				end
				local limit = tonumber(call('ZSCORE', house, 'limit ' .. holder) or -9007199254740992) + 9007199254740992
				for _, value in ipairs({ holder, tonumber(found[j + 1]) - now, limit, metadata }) do
					all[#all + 1] = value
				end
			end
		end
		return all
	end

	-- fits reports whether I can hold a key beside those whom look has seen.
	function shares.fits(i, seen)
		return seen.count + 1 <= math.min(shares.limit[i], seen.least, seen.own)
	end

	-- settle makes the key and its house expire when the last hold ends, or frees the key if there is none. It returns the error
	-- of a command, or whether the key is free.
	local function settle(i)
		local key, house = KEYS[i], houses[i]
		local last = lastEnd(house)
		if last <= now then -- PEXPIREAT would delete only one of them
			call('DEL', key, house)
			return true
		end
		last = string.format('%.0f', last)
		local done = pcall('PEXPIREAT', house, last)
		if type(done) ~= 'table' then
			done = pcall('PEXPIREAT', key, last)
		end
		return type(done) == 'table' and done
	end

	-- hold makes me a holder until then, with that limit and metadata (nil leaves what is there). It returns the error of a
	-- command, or nil.
	function shares.hold(i, ends, limit, metadata)
		local house, members = houses[i], { string.format('%.0f', ends), token }
		if limit < NONE then
			members[3], members[4] = string.format('%.0f', limit - 9007199254740992), 'limit ' .. token
		end
		if metadata then
			local score = metaScore(token)
			local done = pcall('ZREMRANGEBYSCORE', house, score, score)
			if type(done) == 'table' then
				return done
			end
			if metadata ~= '' then
				members[#members + 1], members[#members + 2] = score, 'meta ' .. token .. ' ' .. metadata
			end
		end
		local done = pcall('ZADD', house, unpack(members))
		done = type(done) == 'table' and done or settle(i)
		return type(done) == 'table' and done or nil
	end

	-- renew moves the end of my hold, and gives it new metadata unless that is "" or false. It returns the error of a command, or
	-- nil. Its first command is one that a Redis allows that is out of memory; after it, a script may write.
	function shares.renew(i, ends, metadata)
		local house = houses[i]
		local done = pcall('PEXPIREAT', house, string.format('%.0f', math.max(lastEnd(house), ends)))
		if type(done) == 'table' then
			return done
		end
		return shares.hold(i, ends, NONE, metadata ~= '' and metadata or nil)
	end

	-- undo removes what is left of a create that has failed, apart from the key.
	function shares.undo(i) pcall('DEL', houses[i]) end

	-- create makes a free key one that I hold. It returns the error of a command, or nil.
	function shares.create(i, ttl, metadata)
		local done = pcall('DEL', houses[i]) -- what is left of holders whose key somebody has deleted
		if type(done) ~= 'table' then
			done = pcall('SET', KEYS[i], shares.mark, 'PX', string.format('%.0f', ttl))
		end
		if done.err then
			return done
		end
		return shares.hold(i, now + ttl, shares.limit[i], metadata ~= '' and metadata or nil)
	end

	-- leave takes me out of the holders, and reports whether that has freed the key. If my hold was the last to end, it also
	-- returns in how many ms the last of the others ends.
	function shares.leave(i)
		local house = houses[i]
		local last = call('ZREVRANGE', house, 0, 0)[1]
		drop(house, token)
		local free = settle(i)
		if free == true or last ~= token then
			return free == true, nil
		end
		return false, lastEnd(house) - now
	end
end
