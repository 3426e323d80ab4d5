--[[
note: what a holder waits for itself, which inspect and blocker share. This is not a script of its own: the library puts this
text into theirs, in place of the words "include note". Before that, they have set call, pcall and now (the time in ms).

A caller that holds a key and waits for others meanwhile leaves a note in the line of that key, a member of its own:
   !‹token› ‹names›
token    with which it holds the key
names    the keys for which it waits, as names.go writes them
Its score is minus the time when the note ends, in tenths of a second. That is lower than the limits and higher than the
tickets and marks of line.lua.

KEYS[…]     the lines, where the header of the script says
ARGV        none
Returns     nothing: it defines noteOf and leave
Errors      none of its own
]]

-- noteOf returns what a holder waits for itself, as the latest note in a line says; "" for none.
local function noteOf(line, holder)
	holder = '!' .. holder .. ' '
	local notes = pcall('ZRANGEBYSCORE', line, '-1e12', string.format('(%.0f', -now / 100), 'LIMIT', '0', '1000')
	for i = 1, #notes do -- the key may not be a sorted set
		if string.sub(notes[i], 1, #holder) == holder then
			return string.sub(notes[i], #holder + 1)
		end
	end
	return ''
end

-- leave leaves a note in a line for six seconds, and removes those that have ended, as far as an ACL allows that.
local function leave(line, holder, names)
	local ended = pcall('ZRANGEBYSCORE', line, string.format('%.0f', -now / 100), '-1e7', 'LIMIT', '0', '1000')
	if ended[1] then
		pcall('ZREM', line, unpack(ended))
	end
	pcall('ZADD', line, string.format('%.0f', -(now + 6000) / 100), '!' .. holder .. ' ' .. names)
end
