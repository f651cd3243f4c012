-- Where a snapshot stands that begins now: behind the newest change, where no change will ever be.
--
-- KEYS  1 record of the change journal
--
-- Answer: {at, `created` of the set, now}, or nil if there is no such set.

local record = redis.call('HMGET', KEYS[1], 'last', 'head', 'created')
if not record[1] then return nil end

local at = tonumber(record[1])
if record[1] == record[2] then
  at = at + 1
  redis.call('HSET', KEYS[1], 'last', string.format('%.0f', at))
end
local time = redis.call('TIME')
return {at, tonumber(record[3]), time[1] * 1000000 + time[2]}
