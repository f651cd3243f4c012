-- Close a set's open Change List by time: at the newest edge of the grid that has passed.
--
-- KEYS  1 record   2 windows (both as journal.lua keeps them)
-- ARGV  1 microseconds between the edges of the grid
--
-- Answer: 1 if it was closed just now. No later change can fall before the edge: `last` moves there.

local record = redis.call('HMGET', KEYS[1], 'last', 'window_from', 'window_count', 'window_bytes',
  'changed')
if not record[1] then return 0 end

local last, from, count = tonumber(record[1]), tonumber(record[2]), tonumber(record[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local edge = now - 1 - (now - 1) % tonumber(ARGV[1])
if count == 0 or edge <= from or edge < last then return 0 end

local function digits(number) return string.format('%.0f', number) end

local closed = math.max(now, tonumber(record[5]) + 1)
local window = {record[2], digits(edge), record[3], record[4], digits(closed)}
redis.call('ZADD', KEYS[2], digits(edge), table.concat(window, ' '))
redis.call('HSET', KEYS[1], 'last', digits(edge), 'changed', digits(closed),
  'window_from', digits(edge), 'window_count', 0, 'window_bytes', 0)
return 1
