-- Count a request for its client address, unless too many from there are pending: one atomic step. The
-- script is run again if its answer was lost: a request that counts already is answered yes.
--
-- KEYS  1 pending (sorted set: request -> the second in which it came)
-- ARGV  1 request   2 how many may be pending   3 for how many seconds a request counts

local pending, now = KEYS[1], redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', pending, '-inf', now - ARGV[3])
redis.call('ZREMRANGEBYSCORE', pending, '(' .. now, '+inf')  -- a clock went back
if redis.call('ZSCORE', pending, ARGV[1]) then return 1 end
if redis.call('ZCARD', pending) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', pending, now, ARGV[1])
redis.call('EXPIRE', pending, ARGV[3])
return 1
