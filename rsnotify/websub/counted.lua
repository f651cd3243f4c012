-- Count a subscription for one callback host, or one client address, unless it has too many: one atomic step.
-- A subscription that counts already is answered yes.
--
-- KEYS  1 counted (sorted set: subscription -> the second in which it ceases to count)
-- ARGV  1 subscription   2 how many may count   3 for how many seconds it counts
--       4 the longest that any counts   5 1 if it is confirmed: then it counts for just so long

local counted, now = KEYS[1], redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', counted, '-inf', now)
redis.call('ZREMRANGEBYSCORE', counted, '(' .. (now + ARGV[4]), '+inf')  -- a clock went back
local known = redis.call('ZSCORE', counted, ARGV[1])
if not known and redis.call('ZCARD', counted) >= tonumber(ARGV[2]) then return 0 end
if not known or ARGV[5] == '1' then redis.call('ZADD', counted, now + ARGV[3], ARGV[1]) end
redis.call('EXPIRE', counted, ARGV[4])
return known and 1 or 2
