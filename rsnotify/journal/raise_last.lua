-- Let no later change of a journal be at or before a position that somebody may have been sent.
--
-- KEYS  1 record   ARGV  1 the position

local last = redis.call('HGET', KEYS[1], 'last')
if last and tonumber(last) < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'last', ARGV[1]) end
return 1
