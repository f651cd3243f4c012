-- Do one thing to a key, if what stands there is still what was read.
--
-- KEYS  1 key
-- ARGV  1 field of the hash that the key is, or '' for a string   2 what must stand there
--       3 command   4 .. its arguments after the key
--
-- Answer: 1 if it was done, 0 if something else stands there, or nothing.

local found
if ARGV[1] == '' then
  found = redis.call('GET', KEYS[1])
else
  found = redis.call('HGET', KEYS[1], ARGV[1])
end
if found ~= ARGV[2] then return 0 end
redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))
return 1
