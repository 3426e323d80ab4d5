--[[
shared: keys that several tokens may hold at the same time. All scripts share this text that look at lock keys. It is not a
script of its own: the library puts it into theirs, in place of the words "include shared", where they have found that some
of their keys are so. Before that, they have declared shares, and set token, n (how many lock keys there are) and modes.

A holder says how many holders its key may have, itself included: its limit. 1 is an exclusive lock, which is a string with
its token as ever. Otherwise the key is the string " redislock:shared", which no token can equal, and a sorted set beside it,
its house, has these members for each holder:
   ‹token›                     when its hold ends, in ms of the server's clock
   limit ‹token›               its limit - 2^53, if it has one
   meta ‹token› ‹metadata›     minus a hash of the token, if it has metadata
The key and its house expire when the last of these holds ends; a key that is new, some ms later. A key without a house has no
holder. A hold that has ended is no hold, whether or not it has been removed.

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

	-- mark is what a shared key holds. limit is by the index of the key; count says how many there are.
	shares = { mark = ' redislock:shared', now = now, limit = {}, count = 0 }
	local houses = {} -- by the index of the key
	for i, limit in string.gmatch(modes, ' (%d+)=(%d+)') do
		shares.count = shares.count + 1
		shares.limit[tonumber(i)] = limit == '0' and NONE or tonumber(limit)
		houses[tonumber(i)] = KEYS[n + shares.count]
	end

	local function errorOf(reply) return type(reply) == 'table' and reply or nil end

	local function metaScore(holder)
		return string.format('%.0f', -1 - tonumber(string.sub(redis.sha1hex(holder), 1, 12), 16))
	end

	-- endOf returns when my hold of a key ends, in ms; nil if I have none.
	function shares.endOf(i)
		local ends = tonumber(pcall('ZSCORE', houses[i], token) or 0) -- nil for an error
		return ends and ends > now and ends or nil
	end

	-- wrong returns an error if a house is none: it is of another type, or the key is free and its highest score is no time in ms.
	function shares.wrong(i, free)
		local kind, last = call('TYPE', houses[i]).ok, nil
		if kind == 'zset' and free then
			last = tonumber(call('ZREVRANGE', houses[i], 0, 0, 'WITHSCORES')[2])
		end
		if kind ~= 'none' and (kind ~= 'zset' or last and last >= 0 and last < 1e11) then
			return redis.error_reply('WRONGTYPE "' .. houses[i] .. '" holds a ' .. kind .. ', not the holders of a lock')
		end
	end

	-- lastOther returns when the last hold of another ends, in ms; now if there is none. It returns nil and the error of a command.
	local function lastOther(i)
		local found = pcall('ZREVRANGE', houses[i], 0, 1, 'WITHSCORES')
		if found.err then
			return nil, found
		end
		return math.max(tonumber(found[1] == token and found[4] or found[1] ~= token and found[2] or 0), now)
	end

	-- holderCount returns how many hold a key.
	function shares.holderCount(i) return call('ZCOUNT', houses[i], '(' .. today, '+inf') end

	-- look returns what is known of a key that is held: how many others hold it (count), the least of their limits (least), when
	-- the first hold ends (first) and the last of another (last), when mine ends (ends; nil for none), its limit (own), and
	-- whether there are holds that have ended (stale).
	function shares.look(i)
		local house, skip = houses[i], 0
		local seen = { ends = shares.endOf(i), least = NONE, own = NONE, last = lastOther(i) or call('ZREVRANGE', house, 0, 1) }
		seen.stale = call('ZCOUNT', house, '0', today) > 0
		seen.count = shares.holderCount(i) - (seen.ends and 1 or 0)
		seen.first = tonumber(call('ZRANGEBYSCORE', house, '(' .. today, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or now)
		repeat
			local found = call('ZRANGEBYSCORE', house, LOWEST, HIGHEST, 'WITHSCORES', 'LIMIT', skip, 1)
			local holder = found[1] and string.sub(found[1], 7)
			if holder == token and seen.ends then
				seen.own = tonumber(found[2]) + 9007199254740992
			elseif holder and tonumber(call('ZSCORE', house, holder) or 0) > now then
				seen.least = tonumber(found[2]) + 9007199254740992
			end
			skip = skip + 1
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

	-- The functions below write. None of them raises an error after it has written, because the other keys of the lock would stay
	-- as they are then. None looks at a key after it has set a new or an earlier expiry: Redis 7.0 and older set it by the present
	-- time, and compare it with the time when the script began. If the clock was set back in between, by more than a ttl, the look
	-- deletes the key.

	local function drop(house, holder)
		local score = metaScore(holder)
		local done = pcall('ZREM', house, holder, 'limit ' .. holder)
		pcall('ZREMRANGEBYSCORE', house, score, score)
		return errorOf(done)
	end

	-- purge removes holds that have ended, 1,000 at most. Nothing depends on it. It comes after all other writes, because a Redis
	-- that is out of memory checks only the first.
	function shares.purge(i)
		local ended = pcall('ZRANGEBYSCORE', houses[i], '0', today, 'LIMIT', 0, 1000)
		for j = 1, #ended do
			drop(houses[i], ended[j])
		end
	end

	-- expire makes the house and its key expire then, in ms; the key only if it has not just been created. It returns the error of
	-- a command, or nil.
	local function expire(i, at, created)
		at = string.format('%.0f', at)
		return errorOf(pcall('PEXPIREAT', houses[i], at)) or not created and errorOf(pcall('PEXPIREAT', KEYS[i], at)) or nil
	end

	-- hold makes me a holder until then, with that limit and metadata (nil leaves what is there). The holds of others last until
	-- last; nil if I have just created the key. It returns the error of a command, or nil.
	function shares.hold(i, ends, limit, metadata, last)
		local house, members, old = houses[i], { string.format('%.0f', ends), token }, {}
		if limit < NONE then
			members[3], members[4] = string.format('%.0f', limit - 9007199254740992), 'limit ' .. token
		end
		if metadata then
			local score, text = metaScore(token), 'meta ' .. token .. ' ' .. metadata
			old = pcall('ZRANGEBYSCORE', house, score, score)
			if old.err then
				return old
			elseif metadata ~= '' then
				members[#members + 1], members[#members + 2] = score, text
			end
			if old[1] == text then
				old = {}
			end
		end
		local done = errorOf(pcall('ZADD', house, unpack(members)))
		if old[1] and not done then
			pcall('ZREM', house, unpack(old))
		end
		return done or expire(i, math.max(ends, last or 0), not last)
	end

	-- renew moves the end of my hold, and gives it new metadata, unless that is "" or false. A Redis that is out of memory allows
	-- its first command, and so also those after it.
	function shares.renew(i, ends, metadata)
		local last, failed = lastOther(i)
		failed = failed or expire(i, math.max(ends, last, shares.endOf(i)))
		return failed or shares.hold(i, ends, NONE, metadata ~= '' and metadata or nil, last)
	end

	-- create makes a free key one that I hold. It returns the error of a command, or nil.
	function shares.create(i, ttl, metadata)
		local done = pcall('SET', KEYS[i], shares.mark, 'PX', string.format('%.0f', ttl))
		if done.err then
			return done
		end
		done = errorOf(pcall('DEL', houses[i])) -- what is left of holders whose key somebody has deleted
		return done or shares.hold(i, now + ttl, shares.limit[i], metadata ~= '' and metadata or nil, nil)
	end

	-- undo takes back what hold, or create, has done. What create has made of the key is up to the caller.
	function shares.undo(i, created)
		if created then
			pcall('DEL', houses[i])
		else
			drop(houses[i], token)
		end
	end

	-- leave takes me out of the holders, and reports whether that has freed the key. If my hold was the last to end, it also
	-- returns in how many ms the last of the others ends. It returns the error of a command as the third value.
	function shares.leave(i)
		local own, last, failed = shares.endOf(i), lastOther(i)
		if last == now then
			failed = errorOf(pcall('DEL', KEYS[i], houses[i]))
			return not failed, nil, failed
		end
		failed = failed or drop(houses[i], token)
		if failed then
			return false, nil, failed
		end
		expire(i, last)
		return false, own and own > last and last - now or nil
	end
end
