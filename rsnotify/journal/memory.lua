-- What some keys take of Redis.   KEYS  all of one set

local bytes = 0
for _, key in ipairs(KEYS) do bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0) end
return bytes
