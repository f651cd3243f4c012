-- Let a finished snapshot take the place of the one before it, at once.
--
-- KEYS  1 claim   2 record of the change journal   3 hash of the newest snapshot
--       4 prefix of the keys of snapshots: hash <name>, parts <name>:<number>
--       5 archive (sorted set: names of replaced snapshots that stay, by when they were begun)
--       6 a key that never exists: while a Cluster moves the set, this script is not begun
-- ARGV  1 token that must hold the claim   2 `created` of the set   3 seconds the old one stays
--       4 whether the old one stays in the archive, 1 or 0
--       5 .. field, value, … of the new one, its name and parts among them
--
-- Answer: 1, or 0 if the claim was lost, a part has expired or the set is another one by now.

if string.match(redis.call('GET', KEYS[1]) or '', '^%S*') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[2], 'created') ~= ARGV[2] then return 0 end

local function each_key(name, parts, act)
  act(KEYS[4] .. name)
  for number = 1, parts do act(KEYS[4] .. name .. ':' .. number) end
end

local values = {}
for i = 5, #ARGV, 2 do values[ARGV[i]] = ARGV[i + 1] end
for number = 1, values.parts do
  if redis.call('EXISTS', KEYS[4] .. values.name .. ':' .. number) == 0 then return 0 end
end

local old = redis.call('HMGET', KEYS[3], 'name', 'parts')
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[3], unpack(ARGV, 5))
redis.call('HSET', KEYS[4] .. values.name, unpack(ARGV, 5))
each_key(values.name, values.parts, function(key) redis.call('PERSIST', key) end)
if old[1] and ARGV[4] == '1' then
  redis.call('ZADD', KEYS[5], old[1], old[1])
elseif old[1] then
  each_key(old[1], old[2], function(key) redis.call('EXPIRE', key, ARGV[3]) end)
end
redis.call('DEL', KEYS[1])

local function bytes_of(name, parts)
  local bytes = 0
  each_key(name, parts, function(key) bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0) end)
  return bytes
end

-- What the set takes, as count.lua has it: a list more, and the old one until it ends.
redis.call('HINCRBY', KEYS[2], 'grown', bytes_of(values.name, values.parts))
if old[1] and ARGV[4] ~= '1' then
  redis.call('HINCRBY', KEYS[2], 'replaced', bytes_of(old[1], old[2]))
end
return 1
