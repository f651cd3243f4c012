-- Whether a set keeps, beside its state, where each resource ended that is no more: see journal.lua.
-- Answers since which position it does, which may be long ago, or 0; nil if there is no such journal.
--
-- KEYS  1 record   2 moments of the set's loads, as loads.lua has them   3 prefix of the hashes of the state
-- ARGV  1 1 or 0   2 how many hashes there are

local record = redis.call('HMGET', KEYS[1], 'last', 'head', 'created')
if not record[1] then return nil end

if ARGV[1] == '1' then
  -- In a set in which nothing has happened yet, nothing was forgotten.
  local is_new = record[2] == record[3] and redis.call('EXISTS', KEYS[2]) == 0
  redis.call('HSETNX', KEYS[1], 'tombstones', is_new and record[3] or record[1])
  return redis.call('HGET', KEYS[1], 'tombstones')
end
if redis.call('HDEL', KEYS[1], 'tombstones') == 1 then
  for shard = 0, ARGV[2] - 1 do redis.call('UNLINK', KEYS[3] .. shard .. ':tombstones') end
end
return '0'
