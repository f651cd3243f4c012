-- Leave a gap in a journal whose lost changes nobody remembers. It begins with journal.lua.
--
-- ARGV  7 who holds the journal   8 the newest position that is known to be lost
--
-- Answer: 1, or 0 if somebody else holds it. The open window closes at the newest change that is left;
-- the next one, and the next notification, begin where the gap ends.

if redis.call('GET', KEYS[6]) ~= ARGV[7] then return 0 end
local damaged = damage({})
if damaged then return damaged end

if window_count > 0 then close_window(head) end
last = math.max(tonumber(ARGV[8]), last, head + 1)
head, window_from, record[7] = last, last, digits(last)

local gaps = redis.call('HGET', channel, 'gaps')
redis.call('HSET', channel, 'gaps', (gaps and gaps .. ' ' or '') .. digits(last))
finish({})
return 1
