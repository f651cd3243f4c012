-- Let what was written stand for a closed window, unless the window is no more.
--
-- KEYS  1 windows (as journal.lua keeps them)   2 what was written   3 where it shall stand
-- ARGV  1 the window as it is kept there   2 how long it must be, in bytes
--
-- Answer: 1 if it stands there now, 0 if the window is no more or its writing took too long.

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  redis.call('UNLINK', KEYS[2])
  return 0
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('UNLINK', KEYS[2])
  return 1
end
if redis.call('STRLEN', KEYS[2]) ~= tonumber(ARGV[2]) then return 0 end
redis.call('PERSIST', KEYS[2])
redis.call('RENAME', KEYS[2], KEYS[3])
return 1
