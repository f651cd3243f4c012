-- The newest changes up to a position. It only reads, so a full Redis does it too.
--
-- KEYS  1 stream   2 record (both as journal.lua keeps them)
-- ARGV  1 the position, as an id of the stream   2 how many changes at most
--
-- Answer: {the entries, newest first, `first`, `gaps`}.
--
-- If everything in the stream is newer than the position, XREVRANGE would look at all of it, from its
-- end: a second for a million changes, in which Redis does nothing else. So XRANGE is asked first.

local entries = redis.call('XRANGE', KEYS[1], '-', ARGV[1], 'COUNT', 1)
if #entries > 0 then
  entries = redis.call('XREVRANGE', KEYS[1], ARGV[1], '-', 'COUNT', ARGV[2])
end
local record = redis.call('HMGET', KEYS[2], 'first', 'gaps')
return {entries, record[1], record[2]}
