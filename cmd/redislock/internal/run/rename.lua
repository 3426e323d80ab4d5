--[[
rename: gives the keys of one lock another token, or none of them.

KEYS[1..n]  lock keys
ARGV[1]     the token of the lock
ARGV[2]     the new token

Returns     1    every key has the new token
            0    a key had neither token; nothing was changed
Errors      WRONGTYPE  a key is not a string
]]
local values = {}
for i, key in ipairs(KEYS) do
	local value = redis.call('GET', key) or ''
	for _, token in ipairs(ARGV) do
		if value == token or string.sub(value, 1, #token + 1) == token .. ' ' then
			values[i] = ARGV[2] .. string.sub(value, #token + 1)
		end
	end
	if not values[i] then
		return 0
	end
end
for i, key in ipairs(KEYS) do
	redis.call('SET', key, values[i], 'KEEPTTL')
end
return 1
