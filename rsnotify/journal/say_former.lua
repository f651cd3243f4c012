-- From now on each change says what its resource was, where that was something else: see `former_of`
-- in journal.lua. Answers from which position on, which may be long ago; nil if there is no such journal.
--
-- KEYS  1 record

local last = redis.call('HGET', KEYS[1], 'last')
if not last then return nil end
redis.call('HSETNX', KEYS[1], 'says_former', last)
return redis.call('HGET', KEYS[1], 'says_former')
