-- Load the whole state of a set: what is brought is staged beside the state, compared with it, and
-- takes its place at once, or is published as changes. One atom for each act.
--
-- KEYS  1 record of the change journal   2 the load (hash)   3 what others changed since it began
--         (set of "shard loc", filled by append.lua)
--       4 prefix of the hashes that hold what was staged   5 prefix of those that hold the state; beside each of
--         both, if the set keeps its tombstones, the hash of these: see journal.lua
--       6 claim of the set's next snapshot   7 what became of the last load
--       8 the moments of the loads before this one (hash: `until`, up to where the last of them reached;
--         `replaced`, where the last one stands that published nothing; and of each of these `brought:` with
--         the position in the state of what it brought or deleted -> where it stands)
--       9 what others changed since the moment of the load before this one, up to `until` (set as 3)
--      10 what of 3 was settled already   11 what this load would take back (set as 3)
-- ARGV  1 the act   2 token of the load   3 how many acts of it have been answered, then what the act needs
--
-- Both kinds of hashes have loc -> position of the last change, then the rest of its fragment in the
-- short form, from `\2` on. What was staged with the position of the load differs from the state; what
-- is the same is staged without a value.
--
-- Resources are brought as MessagePack: shard, {loc, rest, loc …}, shard …
--
-- An act of a load that is no longer under way answers nil and does nothing; nor does one of a load of which
-- Redis has lost an act that was answered: what is missing of a state would be taken for deleted.

local record, load, newer, staged, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local moment, since, settled, older = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local SHARDS = 256
local LOOKED_AT = 4000 -- resources, before others have a turn
local AT_ONCE = 2000 -- of one shard, in one command
local SAME = ''
local TOMBSTONES = ':tombstones'
local acts = {}

local function digits(number) return string.format('%.0f', number) end

-- A value that a development version wrote begins with XML behind the position.
local function rest_of(value) return string.sub(value, (string.find(value, '[<\2]'))) end

local KIND = '[\4-\6\14-\16\27-\29]' -- of the change, as the short form writes it

-- The same resource, written in the same way; which change said so does not matter.
local function is_same(value, rest)
  return string.find(value, rest, #value - #rest + 1, true) ~= nil
    or string.gsub(rest_of(value), KIND, '', 1) == string.gsub(rest, KIND, '', 1)
end

local function add_to_grown(bytes) return redis.call('HINCRBY', record, 'grown', digits(bytes)) end

-- Whether the set takes no more than `most` with so many bytes more; 0 is no limit.
local function has_room(most, bytes)
  if tonumber(most) == 0 then return true end
  local sizes = redis.call('HMGET', record, 'counted', 'grown')
  return tonumber(sizes[1] or 0) + tonumber(sizes[2] or 0) + bytes <= tonumber(most)
end

local function drop_staged()
  for shard = 0, SHARDS - 1 do redis.call('UNLINK', staged .. shard, staged .. shard .. TOMBSTONES) end
  redis.call('UNLINK', newer, settled, older)
end

local function drop()
  local freed = tonumber(redis.call('HGET', load, 'bytes') or 0)
  drop_staged()
  redis.call('UNLINK', load)
  if freed > 0 and redis.call('HEXISTS', record, 'created') == 1 then add_to_grown(-freed) end
  redis.call('HDEL', record, 'load')
end

-- token, the key that its Source has given it. The load begins behind the newest change, at a
-- position that no change will ever have. Answers it; nil if there is no such set; the token of
-- another load that has been decided and goes on.
function acts.begin(token, key)
  local last = redis.call('HGET', record, 'last')
  if not last then return nil end
  local other = redis.call('HMGET', load, 'token', 'stage')
  if other[1] and other[2] ~= 'staging' then return other[1] end
  drop()
  local at = tonumber(last) + 1
  redis.call('HSET', load, 'token', token, 'stage', 'staging', 'at', digits(at), 'key', key)
  redis.call('HSET', record, 'load', token, 'last', digits(at))
  return at
end

-- What these resources take when they are staged, at most.
local function bytes_of(shards)
  local size = 0
  for i = 2, #shards, 2 do
    size = size + 50 * #shards[i]
    for _, text in ipairs(shards[i]) do size = size + #text end
  end
  return size
end

-- What the state has of what is brought of one shard, in the same order.
local function known_of(shard, brought)
  if redis.call('EXISTS', state .. shard) == 0 then return {} end
  local locs = {}
  for i = 1, #brought, 2 do locs[#locs + 1] = brought[i] end
  return redis.call('HMGET', state .. shard, unpack(locs))
end

-- bytes that the set may take of Redis, or 0; resources. Answers by how much the set has grown since it was
-- counted, then the index and what is known of those that seem to be different; 0 if there is no room for them.
function acts.stage(most, packed)
  local at, shards = redis.call('HGET', load, 'at'), cmsgpack.unpack(packed)
  local size = bytes_of(shards)
  if not has_room(most, size) then return 0 end
  local different, index = {add_to_grown(size)}, 0
  redis.call('HINCRBY', load, 'bytes', digits(size))
  for i = 1, #shards, 2 do
    local shard, brought = shards[i], shards[i + 1]
    local known = known_of(shard, brought)
    for j = 2, #brought, 2 do
      local value, rest = known[j / 2], brought[j]
      brought[j] = value and is_same(value, rest) and SAME or at .. rest
      if value and brought[j] ~= SAME then
        different[#different + 1] = index
        different[#different + 1] = value
      end
      index = index + 1
    end
    redis.call('HSET', staged .. shard, unpack(brought))
  end
  return different
end

-- Resources without a rest: they are the same after all.
function acts.keep(packed)
  local shards = cmsgpack.unpack(packed)
  for i = 1, #shards, 2 do redis.call('HSET', staged .. shards[i], unpack(shards[i + 1])) end
  return 1
end

-- What the load would do with a resource of which this is staged, and this known.
local function change_of(brought, known)
  if not brought then return known and 'deleted' end
  if brought == SAME then return nil end
  if not known then return 'created' end
  return not is_same(known, rest_of(brought)) and 'updated' or nil
end

-- `newer` or `older`, resources without a rest that were published after the moment of what is brought.
-- Of those that the load would change it notes that they are newer and stay, or that the load is older
-- and takes them back. Answers what it would do, and each loc; of each but once.
function acts.note(which, packed)
  local noted, shards, found = which == 'newer' and newer or older, cmsgpack.unpack(packed), {}
  for i = 1, #shards, 2 do
    local shard, locs = shards[i], shards[i + 1]
    local brought = redis.call('HMGET', staged .. shard, unpack(locs))
    local known = redis.call('HMGET', state .. shard, unpack(locs))
    for j, loc in ipairs(locs) do
      local change, member = change_of(brought[j], known[j]), shard .. ' ' .. loc
      if change and redis.call('SISMEMBER', newer, member) == 0
        and redis.call('SADD', noted, member) == 1 then
        found[#found + 1] = change
        found[#found + 1] = loc
      end
    end
  end
  return found
end

-- What others changed before the moment of the load before this one was reached: some of it, and where
-- to go on, as SSCAN has it.
function acts.since(cursor)
  return redis.call('SSCAN', since, cursor, 'COUNT', 500)
end

-- What the load comes to, added up shard by shard, and some of it by name.
local function comparison(at, room)
  local some_are_newer = redis.call('EXISTS', newer) == 1
  local sum = {brought = 0, known = 0, created = 0, updated = 0, deleted = 0, newer = 0, named = {}}

  local function found(change, shard, loc, rest)
    if some_are_newer and redis.call('SISMEMBER', newer, shard .. ' ' .. loc) == 1 then
      sum.newer = sum.newer + 1
      return
    end
    sum[change] = sum[change] + 1
    if room > 0 then
      room = room - 1
      for _, word in ipairs({change, loc, rest}) do sum.named[#sum.named + 1] = word end
    end
  end

  -- Whether the state does not have it.
  local function look_at(shard, loc, rest)
    local known = redis.call('HGET', state .. shard, loc)
    if not known then
      found('created', shard, loc, rest)
    elseif not is_same(known, rest) then
      found('updated', shard, loc, rest)
    end
    return not known
  end

  local function look_for_deleted(shard, brought)
    local is_brought = {}
    for i = 1, #brought, 2 do is_brought[brought[i]] = true end
    for _, loc in ipairs(redis.call('HKEYS', state .. shard)) do
      if not is_brought[loc] then found('deleted', shard, loc, '') end
    end
  end

  local function look_at_all(shard, known)
    local brought, both = redis.call('HGETALL', staged .. shard), 0
    for i = 1, #brought, 2 do
      local loc, value = brought[i], brought[i + 1]
      local is_new = value ~= SAME and string.sub(value, 1, #at + 1) == at .. '\2'
        and look_at(shard, loc, rest_of(value))
      if not is_new then both = both + 1 end
    end
    if some_are_newer or both < known then look_for_deleted(shard, brought) end
  end

  -- Answers how many resources were looked at.
  function sum.add(shard)
    local brought, known = redis.call('HLEN', staged .. shard), redis.call('HLEN', state .. shard)
    sum.brought, sum.known = sum.brought + brought, sum.known + known
    if known == 0 and room == 0 and not some_are_newer then -- then all of it is new
      sum.created = sum.created + brought
      return 0
    end
    look_at_all(shard, known)
    return brought + known
  end

  return sum
end

-- shard to begin with, how many differences to name. Looks at one shard, and at more while they are
-- small. Answers where to go on; how many resources were staged, are known, would be created,
-- updated, deleted, and stay because they are newer; then of some of them what becomes of each, its loc, the rest of its fragment.
function acts.differ(shard, most)
  local sum = comparison(redis.call('HGET', load, 'at'), tonumber(most))
  shard = tonumber(shard)
  local looked_at = 0
  repeat
    looked_at = looked_at + sum.add(shard)
    shard = shard + 1
  until shard == SHARDS or looked_at > LOOKED_AT
  return {shard, sum.brought, sum.known, sum.created, sum.updated, sum.deleted, sum.newer, sum.named}
end

-- From now on it is done to its end, whoever does it: how, what it found, which body it was,
-- of which moment (nothing if its Source did not say); bytes that the set may take of Redis, or 0. Answers 0
-- if there is no room to publish what was staged: nobody may refuse that later.
function acts.decide(stage, found, fingerprint, as_of, most)
  if not has_room(most, tonumber(redis.call('HGET', load, 'bytes') or 0)) then return 0 end
  redis.call('HSET', load, 'stage', stage, 'found', found, 'fingerprint', fingerprint, 'as_of', as_of)
  return 1
end

-- Give what is the same in this shard its value. What others changed meanwhile is settled later.
function acts.complete(shard)
  local brought, same = redis.call('HGETALL', staged .. shard), {}
  for i = 1, #brought, 2 do
    if brought[i + 1] == SAME then same[#same + 1] = brought[i] end
  end
  for first = 1, #same, AT_ONCE do
    local last, values = math.min(first + AT_ONCE - 1, #same), {}
    local known = redis.call('HMGET', state .. shard, unpack(same, first, last))
    for i = first, last do
      values[#values + 1] = same[i]
      values[#values + 1] = known[i - first + 1] or SAME
    end
    redis.call('HSET', staged .. shard, unpack(values))
  end
  return 1
end

local function set_all(key, values)
  for first = 1, #values, AT_ONCE do
    redis.call('HSET', key, unpack(values, first, math.min(first + AT_ONCE - 1, #values)))
  end
end

-- In a set that keeps its tombstones: this load brings an end to what it does not bring of this shard. What
-- had ended before has its tombstone still, unless it is brought again.
function acts.bury(shard)
  local key, at, values = staged .. shard .. TOMBSTONES, redis.call('HGET', load, 'at'), {}
  local function bury(loc, position)
    if redis.call('HEXISTS', staged .. shard, loc) == 0 then
      values[#values + 1] = loc
      values[#values + 1] = position
    end
  end
  for _, loc in ipairs(redis.call('HKEYS', state .. shard)) do bury(loc, at) end
  local before = redis.call('HGETALL', state .. shard .. TOMBSTONES)
  for i = 1, #before, 2 do bury(before[i], before[i + 1]) end
  redis.call('UNLINK', key)
  set_all(key, values)
  return 1
end

-- That all shards are buried, for a set that keeps its tombstones since this position; nothing if it does not.
function acts.buried(since)
  redis.call('HSET', load, 'buried', since)
  return 1
end

local function copy(from, to, loc)
  local value = redis.call('HGET', from, loc)
  if value then redis.call('HSET', to, loc, value) else redis.call('HDEL', to, loc) end
end

local function settle(member)
  local shard, loc = string.match(member, '^(%d+) (.*)$')
  copy(state .. shard, staged .. shard, loc)
  if (redis.call('HGET', load, 'buried') or '') ~= '' then
    copy(state .. shard .. TOMBSTONES, staged .. shard .. TOMBSTONES, loc)
  end
end

-- how many. What others have changed meanwhile is right as they left it; answers how many are left.
function acts.settle(most)
  for _, member in ipairs(redis.call('SPOP', newer, most)) do
    settle(member)
    redis.call('SADD', settled, member)
  end
  return redis.call('SCARD', newer)
end

-- The load has reached this position: what is changed later is published after it, as is what was newer
-- than what it brought.
local function note_moment(...)
  redis.call('HSET', moment, ...)
  redis.call('SUNIONSTORE', since, newer, settled)
end

local function take_place(shard)
  redis.call('UNLINK', state .. shard)
  if redis.call('EXISTS', staged .. shard) == 1 then redis.call('RENAME', staged .. shard, state .. shard) end
end

-- Let what was staged take the place of the state; answers 0 if too much is to be settled first, and since
-- when the set keeps its tombstones if they are to be buried first, or nothing if it does not any more. A
-- snapshot that is being taken would be half of each: its claim is lost. No change says what became of
-- the state here, so the journal moves to a position of its own.
function acts.replace(most, ...)
  if redis.call('HGET', load, 'stage') ~= 'staging' then return 1 end -- done already, asked again
  local since = redis.call('HGET', record, 'tombstones') or ''
  if (redis.call('HGET', load, 'buried') or '') ~= since then return since end
  if redis.call('SCARD', newer) > tonumber(most) then return 0 end
  for _, member in ipairs(redis.call('SMEMBERS', newer)) do settle(member) end
  for shard = 0, SHARDS - 1 do
    take_place(shard)
    if since ~= '' then take_place(shard .. TOMBSTONES) end
  end
  local at = digits(tonumber(redis.call('HGET', record, 'last')) + 1)
  redis.call('HSET', record, 'last', at)
  note_moment('until', at, 'replaced', at, 'brought:' .. redis.call('HGET', load, 'at'), at)
  redis.call('UNLINK', newer, settled, KEYS[6])
  redis.call('HDEL', record, 'load')
  redis.call('HDEL', load, 'bytes') -- they are not freed when the load ends
  return acts.decide(...)
end

-- what became of it; for a load with a key also the key's name and for how many seconds it is kept
function acts.finish(outcome, remembered, seconds)
  local fingerprint = redis.call('HGET', load, 'fingerprint')
  if remembered then
    redis.call('SET', remembered, fingerprint .. ' ' .. outcome, 'EX', seconds)
    redis.call('HINCRBY', record, 'keys', 2) -- it takes as much as two that are remembered of appends
    add_to_grown(500)
  end
  redis.call('SET', KEYS[7], outcome)
  if redis.call('HGET', load, 'stage') == 'publishing' then
    note_moment('until', redis.call('HGET', record, 'head'))
  end
  drop()
  return 1
end

-- Answers 0 for one that has been decided, which goes on.
function acts.discard()
  if redis.call('HGET', load, 'stage') ~= 'staging' then return 0 end
  drop()
  return 1
end

-- How many resources are known.
function acts.count()
  local known = 0
  for shard = 0, SHARDS - 1 do known = known + redis.call('HLEN', state .. shard) end
  return known
end

-- Where the set was begun, its newest change, the ends of gaps in its journal, and how far the loads before
-- have reached.
function acts.standing()
  local found = redis.call('HMGET', record, 'created', 'head', 'gaps')
  if not found[1] then return nil end
  for _, reached in ipairs(redis.call('HMGET', moment, 'until', 'replaced')) do found[#found + 1] = reached end
  return found
end

local IS_FREE = {begin = true, count = true, standing = true} -- whatever load is under way
if IS_FREE[ARGV[1]] then return acts[ARGV[1]](unpack(ARGV, 2)) end
local token, done = unpack(redis.call('HMGET', load, 'token', 'acts'))
local answered = tonumber(ARGV[3])
if token ~= ARGV[2] or tonumber(done or 0) < answered then return nil end
-- Those that change nothing, or free room, need none.
local IS_UNCOUNTED = {differ = true, since = true, finish = true, discard = true}
if not IS_UNCOUNTED[ARGV[1]] then
  redis.call('HSET', load, 'acts', math.max(tonumber(done or 0), answered + 1))
end
return acts[ARGV[1]](unpack(ARGV, 4))
