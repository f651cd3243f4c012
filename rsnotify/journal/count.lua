-- Count what a set takes of Redis, as one atomic step: what is stored before it is in the sum, and what is
-- stored after it is in `grown`.
--
-- KEYS  1 record of the change journal   2 prefix of the hashes of the state   3 prefix of those that a load
--         has staged   4 .. every other key that may be large
-- ARGV  1 how many hashes of each kind there are   2 bytes of what was counted before, beside these
--       3 seconds for which a key is remembered   4 seconds for which a replaced Resource List is kept
--
-- Answer: the bytes; nil if there is no such set. It begins with what needs no room: then a Redis that is
-- full lets the rest pass, too.

if redis.call('HEXISTS', KEYS[1], 'created') == 0 then return nil end

local EXACT = 100000 -- nodes of a stream that are all looked at; of a larger one, so many…
local IN_EACH = 400 -- …and so many resources of each hash: the few that Redis looks at by itself are the small ones
local bytes = tonumber(ARGV[2])
local keeps_tombstones = redis.call('HEXISTS', KEYS[1], 'tombstones') == 1

local function add(key, ...) bytes = bytes + (redis.call('MEMORY', 'USAGE', key, ...) or 0) end

add(KEYS[1])
for shard = 0, ARGV[1] - 1 do
  add(KEYS[2] .. shard, 'SAMPLES', IN_EACH)
  add(KEYS[3] .. shard, 'SAMPLES', IN_EACH)
  if keeps_tombstones then
    add(KEYS[2] .. shard .. ':tombstones', 'SAMPLES', IN_EACH)
    add(KEYS[3] .. shard .. ':tombstones', 'SAMPLES', IN_EACH)
  end
end
for i = 4, #KEYS do
  if redis.call('TYPE', KEYS[i]).ok == 'stream' then add(KEYS[i], 'SAMPLES', EXACT) else add(KEYS[i]) end
end

redis.call('HDEL', KEYS[1], 'grown')

-- What ends by itself has no list: how much of it was added in this period and in the one before. What is
-- older than a whole period is no more.
local now = tonumber(redis.call('TIME')[1])
local function added(what, seconds)
  local found = redis.call('HMGET', KEYS[1], what, what .. '_before', what .. '_from')
  local recent, before, from = tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0)
  if now - from > seconds then
    recent, before = 0, recent
    redis.call('HSET', KEYS[1], what, 0, what .. '_before', before, what .. '_from', now)
  end
  return recent + before
end

local KEY = 250 -- bytes that a key takes which is remembered; as in append.lua
bytes = bytes + added('keys', tonumber(ARGV[3])) * KEY + added('replaced', tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], 'counted', string.format('%.0f', bytes))
return bytes
