-- Put back what a journal has lost, once for all processes, as one atom. It begins with journal.lua.
--
-- KEYS  8 repaired (hash: position -> b, put back there, or a, appended again elsewhere)
-- ARGV  7 `last` as the repair was planned for   8 seconds to remember what was repaired
--       9 number of changes to put back at their datetimes   10 to append again   11 who holds the journal
--       .. the changes
--       .. for each key to put back: key, seconds, "fingerprint from until"
--
-- Answer: 1, or 0 if the journal has changed since the repair was planned, or somebody else holds it.

if record[1] ~= ARGV[7] or redis.call('GET', KEYS[6]) ~= ARGV[11] then return 0 end

local backs, agains, shards = tonumber(ARGV[9]), tonumber(ARGV[10]), {}
local after = 12 + 5 * (backs + agains)
local kinds = {[KEYS[8]] = 'hash'}
for i = after, #ARGV, 3 do kinds[remembered .. ARGV[i]] = 'string' end
expect_shards(kinds, 12, backs + agains)
local damaged = damage(kinds)
if damaged then return damaged end

for i = 12, 7 + 5 * backs, 5 do
  store(tonumber(ARGV[i]), i, shards)
  redis.call('HSET', KEYS[8], ARGV[i], 'b')
  head = last
end
last = math.max(last, tonumber(ARGV[6]))
for i = 12 + 5 * backs, after - 1, 5 do
  store(math.max(now, last + 1), i, shards)
  redis.call('HSET', KEYS[8], ARGV[i], 'a')
  head = last
end
for i = after, #ARGV, 3 do
  redis.call('SET', remembered .. ARGV[i], ARGV[i + 2], 'EX', ARGV[i + 1], 'NX')
end
if backs + agains > 0 then redis.call('EXPIRE', KEYS[8], ARGV[8]) end
finish(shards)
return 1
