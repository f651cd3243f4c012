-- Take members out of a sorted set, and what they stand for with them. A full Redis refuses transactions, but
-- does this, as it only frees room.
--
-- KEYS  1 sorted set   2 .. what its members stand for
-- ARGV  1 score up to which they go   2 seconds after which the rest goes, or 0

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
for i = 2, #KEYS do
  if ARGV[2] == '0' then redis.call('UNLINK', KEYS[i]) else redis.call('EXPIRE', KEYS[i], ARGV[2]) end
end
return 1
