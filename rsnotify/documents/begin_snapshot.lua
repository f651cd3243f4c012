-- Where a snapshot stands that begins now: behind the newest change, where no change will ever be.
--
-- KEYS  1 record of the change journal   2 claim
-- ARGV  1 token that must hold the claim   2 the one from now on   3 milliseconds until it ends
--
-- Answer: {at, `created` of the set, now, changes in the open window}; 0 if the claim was lost, or nil if there is no such set.
--
-- A Redis that falls back to before this has lost changes that the snapshot would claim to have, and
-- the new token with them: so nobody holds the claim there.

local held = string.match(redis.call('GET', KEYS[2]) or '', '^%S*')
if held ~= ARGV[1] and held ~= ARGV[2] then return 0 end
local record = redis.call('HMGET', KEYS[1], 'last', 'head', 'created', 'window_count')
if not record[1] then return nil end

redis.call('SET', KEYS[2], ARGV[2] .. ' 0', 'PX', ARGV[3])
local at = tonumber(record[1])
if record[1] == record[2] then
  at = at + 1
  redis.call('HSET', KEYS[1], 'last', string.format('%.0f', at))
end
local time = redis.call('TIME')
return {at, tonumber(record[3]), time[1] * 1000000 + time[2], tonumber(record[4])}
