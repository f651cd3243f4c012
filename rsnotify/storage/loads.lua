-- Load the whole state of a set: what is brought is staged beside the state, compared with it, and
-- takes its place at once, or is published as changes. One atom for each act.
--
-- KEYS  1 record of the change journal   2 the load (hash)   3 what others changed since it began
--         (set of "shard loc", filled by append.lua)
--       4 prefix of the hashes that hold what was staged   5 prefix of those that hold the state
--       6 claim of the set's next snapshot   7 what became of the last load
-- ARGV  1 the act   2 token of the load, then what the act needs
--
-- Both kinds of hashes have loc -> position of the last change, then the rest of its fragment, from
-- `</loc>` on. What was staged with the position of the load differs from the state.
--
-- An act of a load that is no longer under way answers nil and does nothing.

local record, load, newer, staged, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local SHARDS = 256
local LOOKED_AT = 4000 -- resources, before others have a turn
local acts = {}

local function digits(number) return string.format('%.0f', number) end

local function rest_of(value) return string.sub(value, (string.find(value, '</loc>', 1, true))) end

-- The same resource, written in the same way; which change said so does not matter.
local function is_same(value, rest)
  local known = rest_of(value)
  return known == rest
    or string.gsub(known, 'change="%a+"', '', 1) == string.gsub(rest, 'change="%a+"', '', 1)
end

local function drop_staged()
  for shard = 0, SHARDS - 1 do redis.call('UNLINK', staged .. shard) end
  redis.call('UNLINK', newer)
end

local function drop()
  drop_staged()
  redis.call('UNLINK', load)
  redis.call('HDEL', record, 'load')
end

-- The load begins behind the newest change, at a position that no change will ever have. Answers it;
-- nil if there is no such set; the token of another load that has been decided and goes on.
function acts.begin(token)
  local last = redis.call('HGET', record, 'last')
  if not last then return nil end
  local other = redis.call('HMGET', load, 'token', 'stage')
  if other[1] and other[2] ~= 'staging' then return other[1] end
  drop()
  local at = tonumber(last) + 1
  redis.call('HSET', load, 'token', token, 'stage', 'staging', 'at', digits(at))
  redis.call('HSET', record, 'load', token, 'last', digits(at))
  return at
end

-- shard, loc, rest, shard … as MessagePack. Answers the index and what is known of those that seem
-- to be different.
function acts.stage(packed)
  local at, brought, different = redis.call('HGET', load, 'at'), cmsgpack.unpack(packed), {}
  for i = 1, #brought, 3 do
    local shard, loc, rest = brought[i], brought[i + 1], brought[i + 2]
    local value = redis.call('HGET', state .. shard, loc)
    if value and not is_same(value, rest) then
      different[#different + 1] = (i - 1) / 3
      different[#different + 1] = value
      value = false
    end
    redis.call('HSET', staged .. shard, loc, value or at .. rest)
  end
  return different
end

-- shard, loc, value, shard … as MessagePack: these are the same after all.
function acts.keep(packed)
  local values = cmsgpack.unpack(packed)
  for i = 1, #values, 3 do redis.call('HSET', staged .. values[i], values[i + 1], values[i + 2]) end
  return 1
end

-- What the load comes to, added up shard by shard, and some of it by name.
local function comparison(at, room)
  local some_are_newer = redis.call('EXISTS', newer) == 1
  local sum = {brought = 0, known = 0, created = 0, updated = 0, deleted = 0, named = {}}

  local function found(change, shard, loc, rest)
    if some_are_newer and redis.call('SISMEMBER', newer, shard .. ' ' .. loc) == 1 then return end
    sum[change] = sum[change] + 1
    if room > 0 then
      room = room - 1
      for _, word in ipairs({change, loc, rest}) do sum.named[#sum.named + 1] = word end
    end
  end

  local function look_at(shard, loc, rest)
    local known = redis.call('HGET', state .. shard, loc)
    if not known then
      found('created', shard, loc, rest)
    elseif not is_same(known, rest) then
      found('updated', shard, loc, rest)
    end
  end

  function sum.add(shard)
    local brought, is_brought = redis.call('HGETALL', staged .. shard), {}
    for i = 1, #brought, 2 do
      local loc, value = brought[i], brought[i + 1]
      is_brought[loc] = true
      if string.sub(value, 1, #at + 1) == at .. '<' then look_at(shard, loc, rest_of(value)) end
    end
    local known = redis.call('HKEYS', state .. shard)
    for _, loc in ipairs(known) do
      if not is_brought[loc] then found('deleted', shard, loc, '') end
    end
    sum.brought, sum.known = sum.brought + #brought / 2, sum.known + #known
  end

  return sum
end

-- shard to begin with, how many differences to name. Looks at one shard, and at more while they are
-- small. Answers where to go on; how many resources were staged, are known, would be created,
-- updated, deleted; then of some of them what becomes of each, its loc, the rest of its fragment.
function acts.differ(shard, most)
  local sum = comparison(redis.call('HGET', load, 'at'), tonumber(most))
  shard = tonumber(shard)
  repeat
    sum.add(shard)
    shard = shard + 1
  until shard == SHARDS or sum.brought + sum.known > LOOKED_AT
  return {shard, sum.brought, sum.known, sum.created, sum.updated, sum.deleted, sum.named}
end

-- From now on it is done to its end, whoever does it: how, what it found, whose key it has.
function acts.decide(stage, found, key, fingerprint)
  redis.call('HSET', load, 'stage', stage, 'found', found, 'key', key, 'fingerprint', fingerprint)
  return 1
end

local function settle(member)
  local shard, loc = string.match(member, '^(%d+) (.*)$')
  local value = redis.call('HGET', state .. shard, loc)
  if value then
    redis.call('HSET', staged .. shard, loc, value)
  else
    redis.call('HDEL', staged .. shard, loc)
  end
end

-- how many. What others have changed meanwhile is right as they left it; answers how many are left.
function acts.settle(most)
  for _, member in ipairs(redis.call('SPOP', newer, most)) do settle(member) end
  return redis.call('SCARD', newer)
end

-- Let what was staged take the place of the state; answers 0 if too much is to be settled first. A
-- snapshot that is being taken would be half of each: its claim is lost.
function acts.replace(most, ...)
  if redis.call('HGET', load, 'stage') ~= 'staging' then return 1 end -- done already, asked again
  if redis.call('SCARD', newer) > tonumber(most) then return 0 end
  for _, member in ipairs(redis.call('SMEMBERS', newer)) do settle(member) end
  for shard = 0, SHARDS - 1 do
    redis.call('UNLINK', state .. shard)
    if redis.call('EXISTS', staged .. shard) == 1 then
      redis.call('RENAME', staged .. shard, state .. shard)
    end
  end
  redis.call('UNLINK', newer, KEYS[6])
  redis.call('HDEL', record, 'load')
  return acts.decide(...)
end

-- what became of it; for a load with a key also the key's name and for how many seconds it is kept
function acts.finish(outcome, remembered, seconds)
  local fingerprint = redis.call('HGET', load, 'fingerprint')
  if remembered then redis.call('SET', remembered, fingerprint .. ' ' .. outcome, 'EX', seconds) end
  redis.call('SET', KEYS[7], outcome)
  drop()
  return 1
end

-- Answers 0 for one that has been decided, which goes on.
function acts.discard()
  if redis.call('HGET', load, 'stage') ~= 'staging' then return 0 end
  drop()
  return 1
end

if ARGV[1] ~= 'begin' and redis.call('HGET', load, 'token') ~= ARGV[2] then return nil end
return acts[ARGV[1]](unpack(ARGV, ARGV[1] == 'begin' and 2 or 3))
