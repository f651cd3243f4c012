-- Where a set's Change Lists stand, at one moment. It only reads, so a full Redis does it too.
--
-- KEYS  1 record   2 windows (both as journal.lua keeps them)
-- ARGV  1 the score from which on windows are wanted   2 .. fields of the record
--
-- Answer: {the fields, the closed windows from there on, the oldest of all}.

return {
  redis.call('HMGET', KEYS[1], unpack(ARGV, 2)),
  redis.call('ZRANGEBYSCORE', KEYS[2], ARGV[1], '+inf'),
  redis.call('ZRANGE', KEYS[2], 0, 0),
}
