--[[
note: what a holder waits for itself, which inspect and blocker share. This is not a script of its own: the library puts this
text into theirs, in place of the words "include note". Before that, they have set pcall, and of KEYS n and shares.

A caller that holds a key, has waiters there and waits for others itself leaves a note beside that key, a string:
   ‹token› ‹names›
token    with which it holds the key
names    the keys for which it waits, as names.go writes them
The note expires six seconds after it was written. It says nothing of a key that another token holds.

KEYS[n+shares.count+1…]  the line and the note of the first key, those of the second one, …
ARGV        none
Returns     nothing: it defines noteOf
Errors      none of its own
]]

-- noteOf returns what the holder of KEYS[i] with this value waits for itself; "" if no note says that.
local function noteOf(i, value)
	local name = KEYS[n + shares.count + 2 * i]
	local note, token = name and pcall('GET', name), string.match(value, '^[^ ]*')
	if type(note) ~= 'string' or token == '' or string.sub(note, 1, #token + 1) ~= token .. ' ' then
		return ''
	end
	return string.sub(note, #token + 2)
end
