-- Let go of the part of a stream whose changes are kept elsewhere, or by nobody any more.
--
-- KEYS  1 stream   2 record   3 what keeps the changes instead, if ARGV[3] is 1
-- ARGV  1 position where the stream begins until now   2 where it shall begin   3 1 or 0
--
-- Answer: 1 if the stream begins at ARGV[2] now, 0 if somebody else was faster or nothing is kept.

if redis.call('HGET', KEYS[2], 'first') ~= ARGV[1] then return 0 end
if ARGV[3] == '1' and redis.call('EXISTS', KEYS[3]) == 0 then return 0 end

local first = tonumber(ARGV[2]) + 1
local microseconds = first % 1000
redis.call('XTRIM', KEYS[1], 'MINID',
  string.format('%.0f-%d', (first - microseconds) / 1000, microseconds))
redis.call('HSET', KEYS[2], 'first', ARGV[2])
return 1
