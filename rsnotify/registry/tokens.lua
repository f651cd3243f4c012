-- Make, end, revoke or put back tokens. One that was revoked stays so, whatever a process remembers.
--
-- KEYS  1 tokens (hash: SHA-256 of a token -> its record)
--       2 those that were revoked in the last day (sorted set, by time)
-- ARGV  1 the act   2 the bell   3 .. what the act needs
--
-- Every process hears of those that are revoked, and remembers them for a minute: Redis may lose it.
-- It hears of those that are made, too: it may have just found that there is no such token.
--
-- Answers how many tokens were made, ended or revoked.

local tokens, revoked = KEYS[1], KEYS[2]
local acts, time, DAY = {}, redis.call('TIME')[1], 86400

-- token, record
function acts.create(token, record)
  local made = redis.call('HSETNX', tokens, token, record)
  if made == 1 then
    redis.call('ZREM', revoked, token)
    redis.call('PUBLISH', ARGV[2], 'made ' .. token)
  end
  return made
end

-- It begins with what needs no room: then a Redis that is full lets the rest pass, too.
function acts.revoke(...)
  local gone = redis.call('HDEL', tokens, ...)
  for _, token in ipairs({...}) do
    redis.call('ZADD', revoked, time, token)
    redis.call('PUBLISH', ARGV[2], 'revoked ' .. token)
  end
  redis.call('ZREMRANGEBYSCORE', revoked, '-inf', time - DAY)
  return gone
end

-- token, record: the same token, with the time when it ends; an earlier end stays
function acts.expire(token, record)
  if redis.call('ZSCORE', revoked, token) then return 0 end
  local kept = redis.call('HGET', tokens, token)
  local ends = kept and cjson.decode(kept).expires
  if ends and ends <= cjson.decode(record).expires then return 0 end
  redis.call('HSET', tokens, token, record)
  return 1
end

-- token, record
function acts.put_back(token, record)
  if redis.call('ZSCORE', revoked, token) then return 0 end
  local made = redis.call('HSETNX', tokens, token, record)
  if made == 1 then redis.call('PUBLISH', ARGV[2], 'made ' .. token) end
  return made
end

return acts[ARGV[1]](unpack(ARGV, 3))
