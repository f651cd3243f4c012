-- Count a request for whoever asks, unless too many of theirs are pending: one atomic step. It is asked
-- again if its answer was lost: a request that counts already is answered yes.
--
-- KEYS  1 asker (sorted set: request -> the second in which it came)
-- ARGV  1 request   2 how many may be pending   3 for how many seconds a request counts

local asker, now = KEYS[1], redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', asker, '-inf', now - ARGV[3])
redis.call('ZREMRANGEBYSCORE', asker, '(' .. now, '+inf')  -- a clock went back
if redis.call('ZSCORE', asker, ARGV[1]) then return 1 end
if redis.call('ZCARD', asker) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', asker, now, ARGV[1])
redis.call('EXPIRE', asker, ARGV[3])
return 1
