-- Write the next piece of something large, which expires unless somebody keeps it.
--
-- KEYS  1 key
-- ARGV  1 where the piece begins   2 the piece   3 seconds
--
-- Answer: 1, or 0 if what stood before it has expired meanwhile.

if redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[1]) then return 0 end
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
