-- Make, end or revoke tokens.
--
-- KEYS  1 tokens (hash: SHA-256 of a token -> its record)
-- ARGV  1 the act   2 the bell   3 .. what the act needs
--
-- Every process hears of those that are revoked, and remembers them for a minute: Redis may lose it.
-- It hears of those that are made, too: it may have just found that there is no such token.
--
-- Answers how many tokens were made, ended or revoked.

local tokens, acts = KEYS[1], {}

-- token, record
function acts.create(token, record)
  local made = redis.call('HSETNX', tokens, token, record)
  if made == 1 then redis.call('PUBLISH', ARGV[2], 'made ' .. token) end
  return made
end

function acts.revoke(...)
  local gone = redis.call('HDEL', tokens, ...)
  for _, token in ipairs({...}) do redis.call('PUBLISH', ARGV[2], 'revoked ' .. token) end
  return gone
end

-- token, record: the same token, with the time when it ends; an earlier end stays
function acts.expire(token, record)
  local kept = redis.call('HGET', tokens, token)
  if not kept then return 0 end
  local ends = cjson.decode(kept).expires
  if ends and ends <= cjson.decode(record).expires then return 0 end
  redis.call('HSET', tokens, token, record)
  return 1
end

return acts[ARGV[1]](unpack(ARGV, 3))
