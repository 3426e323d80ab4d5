--[[
waiters: the waiters in one line.

KEYS[1]     the line, as line.lua describes it
ARGV        none

Returns     {ms, member, score, …}  the time in ms, and all members, lower scores first: the
                    marks in any order, the limits of waiters who would share the key, and then
                    the entries in the order of their tickets
Errors      WRONGTYPE  the line is not a sorted set
]]
local now = redis.call('TIME')
local members = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
table.insert(members, 1, now[1] * 1000 + math.floor(now[2] / 1000))
return members
