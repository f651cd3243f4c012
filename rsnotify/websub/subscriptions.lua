-- Everything that must be one atomic step about the subscriptions of one share.
--
-- KEYS  1 owner (string: the process that may call this share's callbacks, and its last sign of life)
--       2 records (hash: subscription -> what its callback confirmed)
--       3 progress (hash: subscription -> how far it has come)
--       4 requests (hash: request -> its time and what was asked)
--       5 latest (hash: subscription -> digest and id of its newest pending request)
--       6 host (sorted set of the requests pending for one callback host)
-- ARGV  1 the act, then what it needs
--
-- What only the owner may write is refused to everyone else: `ask` and `remove` are for all.

local owner, records, progress = KEYS[1], KEYS[2], KEYS[3]
local requests, latest, host = KEYS[4], KEYS[5], KEYS[6]
local acts = {}

-- The process that owns the share, and its sign of life when it said so last.
local function holder()
  local held = redis.call('GET', owner)
  if not held then return nil end
  local name, beat = string.match(held, '^(%S+) (%d+)$')
  return name or held, tonumber(beat)
end

local function is_owner(me) return holder() == me end

-- Whether the name stands among those who are gone, with no earlier sign of life than this one.
local function is_gone(name, beat, gone)
  for i = 1, #gone, 2 do
    if gone[i] == name and beat and beat <= tonumber(gone[i + 1]) then return true end
  end
  return false
end

-- me, my sign of life, then whoever is gone and its last sign, again and again: own the share, or
-- go on owning it; otherwise whoever owns it. No clock of Redis is asked: it may jump.
function acts.claim(me, beat, ...)
  local name, seen = holder()
  if name and name ~= me and not is_gone(name, seen, {...}) then return redis.call('GET', owner) end
  redis.call('SET', owner, me .. ' ' .. beat)
  return 1
end

-- me, my sign of life: go on owning it. What is nobody's is not taken: it may have changed meanwhile.
function acts.renew(me, beat)
  if not is_owner(me) then return 0 end
  redis.call('SET', owner, me .. ' ' .. beat)
  return 1
end

function acts.release(me)
  if is_owner(me) then redis.call('DEL', owner) end
  return 1
end

-- subscription, digest of what is asked, request's id, request, how many a host may have pending.
-- It is asked again if its answer was lost: what is pending already is answered yes.
function acts.ask(subscription, digest, id, request, limit)
  if redis.call('HEXISTS', requests, id) == 1 then return 1 end
  local before = redis.call('HGET', latest, subscription)
  if before and string.sub(before, 1, #digest) == digest then return 0 end
  if redis.call('ZCARD', host) >= tonumber(limit) then return -1 end
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  redis.call('HSET', requests, id, now .. ' ' .. request)
  redis.call('HSET', latest, subscription, digest .. ' ' .. id)
  redis.call('ZADD', host, now, id)
  return 1
end

-- me, request's id, subscription, then: record and first progress to keep, or nothing
function acts.finish(me, id, subscription, what, record, first)
  if not is_owner(me) then return 0 end
  redis.call('HDEL', requests, id)
  redis.call('ZREM', host, id)
  local newest = redis.call('HGET', latest, subscription)
  if newest and string.sub(newest, -#id) == id then redis.call('HDEL', latest, subscription) end
  if what == 'keep' then
    redis.call('HSET', records, subscription, record)
    redis.call('HSETNX', progress, subscription, first)
  elseif what == 'drop' then
    acts.remove(subscription)
  end
  return 1
end

-- me, then subscription and progress again and again
function acts.record(me, ...)
  if not is_owner(me) then return 0 end
  local pairs_ = {...}
  for i = 1, #pairs_, 2 do
    if redis.call('HEXISTS', records, pairs_[i]) == 1 then
      redis.call('HSET', progress, pairs_[i], pairs_[i + 1])
    end
  end
  return 1
end

function acts.remove(...)
  redis.call('HDEL', progress, ...)
  return redis.call('HDEL', records, ...)
end

-- me, then subscription and the end of its lease again and again; answers the record of each that has
-- another lease and so stays, nothing for each that has ended.
function acts.forget(me, ...)
  if not is_owner(me) then return {} end
  local pairs_, over, left = {...}, {}, {}
  for i = 1, #pairs_, 2 do
    local record = redis.call('HGET', records, pairs_[i])
    local lease_end = record and string.match(record, '"lease_end":(%d+)')
    local stays = lease_end and lease_end ~= pairs_[i + 1]
    left[#left + 1] = stays and record or ''
    if not stays then over[#over + 1] = pairs_[i] end
  end
  if #over > 0 then acts.remove(unpack(over)) end
  return left
end

return acts[ARGV[1]](unpack(ARGV, 2))
