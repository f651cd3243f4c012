-- Let no later change of a journal be at or before a position that somebody may have been sent.
--
-- KEYS  1 record   ARGV  1 the position   2 where it is kept: `last` or `floor`

local record = redis.call('HMGET', KEYS[1], 'created', ARGV[2])
if record[1] and tonumber(record[2] or 0) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], ARGV[2], ARGV[1])
end
return 1
