-- Count what a set takes of Redis, as one atomic step: what is stored before it is in the sum, and what is
-- stored after it is in `grown`.
--
-- KEYS  1 record of the change journal   2 prefix of the hashes of the state   3 prefix of those that a load
--         has staged   4 .. every other key that may be large
-- ARGV  1 how many hashes of each kind there are   2 bytes of what was counted before, beside these
--
-- Answer: the bytes; nil if there is no such set. It begins with what needs no room: then a Redis that is
-- full lets the rest pass, too.

if redis.call('HEXISTS', KEYS[1], 'created') == 0 then return nil end

local EXACT = 100000 -- nodes of a stream that are all looked at; of a larger one, so many
local bytes = tonumber(ARGV[2])

local function add(key, ...) bytes = bytes + (redis.call('MEMORY', 'USAGE', key, ...) or 0) end

add(KEYS[1])
for shard = 0, ARGV[1] - 1 do
  add(KEYS[2] .. shard)
  add(KEYS[3] .. shard)
end
for i = 4, #KEYS do
  if redis.call('TYPE', KEYS[i]).ok == 'stream' then add(KEYS[i], 'SAMPLES', EXACT) else add(KEYS[i]) end
end

-- The keys of appends have no list. Those of the day before the one that was begun last are no more.
local KEY, DAY = 250, 24 * 3600 -- bytes that one takes; seconds for which it is remembered
local now = tonumber(redis.call('TIME')[1])
local keys = redis.call('HMGET', KEYS[1], 'keys', 'keys_before', 'keys_from')
local recent, before, from = tonumber(keys[1] or 0), tonumber(keys[2] or 0), tonumber(keys[3] or 0)
if now - from > DAY then recent, before, from = 0, recent, now end
bytes = bytes + (recent + before) * KEY

redis.call('HDEL', KEYS[1], 'grown')
redis.call('HSET', KEYS[1], 'counted', string.format('%.0f', bytes),
  'keys', recent, 'keys_before', before, 'keys_from', from)
return bytes
