-- Append submissions to one channel of one set: the only way into a journal, and one atom.
--
-- KEYS  1 stream   2 record (hash: see rsnotify.core.window.Record, and `latest`)
--       3 windows (sorted set: until of a closed window -> "from until count bytes closed")
--       4 prefix of the 256 hashes that hold the set's current state
--       5 prefix of the idempotency keys
--       6 what was changed since a load of the whole state began (set, see loads.lua)
-- ARGV  1 name of the channel as the bell calls it   2 the bell
--       3 changes a window holds, 0 for a channel without windows   4 bytes it holds
--       5 microseconds between the edges of the grid on which windows close
--       6 .. for each submission: key, seconds to remember it, fingerprint, number of changes,
--            then for each change: its own datetime in microseconds or 0, state shard or -1,
--            d (deleted) or u, length of the escaped loc, fragment; d or u is followed by the token of
--            a load, if the change is one that it found: whatever came after its beginning is newer
--
-- Answer: for each submission {from, until}, or {from, until, 1} where the key was known,
-- or {} where the key was used for something else. A channel that does not exist answers nil,
-- one of whose keys is not what it should be an error, and nothing is written.

local stream, channel, windows = KEYS[1], KEYS[2], KEYS[3]
local record = redis.call('HMGET', channel, 'last', 'window_from', 'window_count', 'window_bytes',
  'changed', 'created', 'head', 'first', 'load')
if not record[1] then return nil end

local last, window_from = tonumber(record[1]), tonumber(record[2])
local window_count, window_bytes = tonumber(record[3]), tonumber(record[4])
local most_changes, most_bytes, period = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local changed = math.max(now, tonumber(record[5]) + 1)
local remembered = KEYS[5] .. record[6] .. ':' -- a set made anew remembers nothing of the old one
-- The newest change, or where the stream begins behind it; `last` may have moved beyond both.
local head = math.max(tonumber(record[7]), tonumber(record[8]))
local load = record[9] -- the token of the load that is under way
local answers, at, appended = {}, 6, false
local FILLED = 54 -- bytes by which the position lengthens a fragment, at most

-- Positions are below 2^53, so a Lua number holds them exactly; %.0f writes all their digits.
local function digits(number) return string.format('%.0f', number) end

local function stream_id(position)
  local microseconds = position % 1000
  return string.format('%.0f-%d', (position - microseconds) / 1000, microseconds)
end

-- What a script has written is not undone when it fails: so it looks at every key first.
local function damaged()
  local kinds = {[stream] = 'stream', [windows] = 'zset', [KEYS[6]] = 'set'}
  local submission = 6
  while submission <= #ARGV do
    local after = submission + 4 + tonumber(ARGV[submission + 3]) * 5
    kinds[remembered .. ARGV[submission]] = 'string'
    for i = submission + 5, after - 1, 5 do
      if ARGV[i] ~= '-1' then kinds[KEYS[4] .. ARGV[i]] = 'hash' end
    end
    submission = after
  end
  for key, kind in pairs(kinds) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= kind then
      return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. found .. ' instead of a ' .. kind)
    end
  end
end

local damage = damaged()
if damage then return damage end

-- A Source's own time counts unless it lies in the future or more than a second behind.
local function next_position(own)
  if own == 0 or own > now or own < last - 1000000 then own = now end
  if own <= last then own = last + 1 end
  return own
end

local function close_window(edge)
  local window = {digits(window_from), digits(edge), window_count, digits(window_bytes), digits(changed)}
  redis.call('ZADD', windows, digits(edge), table.concat(window, ' '))
  window_from, window_count, window_bytes = edge, 0, 0
end

-- A window ends at the last edge of the grid between its last change and the one that comes, and
-- before a change that would make it too large. An empty one stays open.
local function make_room(position, size)
  if most_changes == 0 or window_count == 0 then return end
  local edge = position - 1 - (position - 1) % period
  if edge >= last then
    close_window(edge)
  elseif window_bytes + size > most_bytes then
    close_window(last)
  end
end

local function count_in_window(size)
  if most_changes == 0 then return end
  window_count, window_bytes = window_count + 1, window_bytes + size
  if window_count >= most_changes then close_window(last) end
end

local function fold(shards, shard, gone, escaped_length, fragment)
  if shard == '-1' then return end
  local loc = string.sub(fragment, 11, 10 + escaped_length)
  local state = shards[shard]
  if not state then state = {}; shards[shard] = state end
  state[loc] = not gone and digits(last) .. string.sub(fragment, 11 + escaped_length)
end

-- Whether a change that a load has found is out of date, or the load is no longer under way.
local function is_outdated(of_load, shard, escaped_length, fragment)
  if of_load == '' then return false end
  local loc = string.sub(fragment, 11, 10 + escaped_length)
  return of_load ~= load or redis.call('SISMEMBER', KEYS[6], shard .. ' ' .. loc) == 1
end

local function note_newer(shard, of_load, escaped_length, fragment)
  if not load or of_load ~= '' or shard == '-1' then return end
  redis.call('SADD', KEYS[6], shard .. ' ' .. string.sub(fragment, 11, 10 + escaped_length))
end

local function write_state(shards)
  for shard, state in pairs(shards) do
    local set, del = {}, {}
    for loc, value in pairs(state) do
      if value then set[#set + 1] = loc; set[#set + 1] = value else del[#del + 1] = loc end
    end
    local key = KEYS[4] .. shard
    for i = 1, #set, 4000 do redis.call('HSET', key, unpack(set, i, math.min(i + 3999, #set))) end
    for i = 1, #del, 4000 do redis.call('HDEL', key, unpack(del, i, math.min(i + 3999, #del))) end
  end
end

local function append_one(i, shards)
  local shard, kind, length, fragment = ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local of_load = string.sub(kind, 2)
  if is_outdated(of_load, shard, length, fragment) then return end
  local position, size = next_position(tonumber(ARGV[i])), #fragment + FILLED
  make_room(position, size)
  last, head = position, position
  redis.call('XADD', stream, stream_id(last), '', fragment)
  fold(shards, shard, string.sub(kind, 1, 1) == 'd', length, fragment)
  note_newer(shard, of_load, length, fragment)
  count_in_window(size)
end

local function append(first, count, shards)
  local from = head
  for i = first, first + (count - 1) * 5, 5 do append_one(i, shards) end
  return from
end

local shards = {}
while at <= #ARGV do
  local key, seconds, fingerprint = remembered .. ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local count = tonumber(ARGV[at + 3])
  local known = redis.call('GET', key)
  if known then
    local known_fingerprint, from, until_ = string.match(known, '^(%S*) (%d+) (%d+)$')
    answers[#answers + 1] = known_fingerprint == fingerprint
      and {tonumber(from), tonumber(until_), 1} or {}
  else
    local from = append(at + 4, count, shards)
    redis.call('SET', key, fingerprint .. ' ' .. digits(from) .. ' ' .. digits(head), 'EX', seconds)
    answers[#answers + 1] = {from, head}
    appended = appended or head > from
  end
  at = at + 4 + count * 5
end

if appended then
  write_state(shards)
  redis.call('HSET', channel, 'last', digits(last), 'head', digits(head), 'changed', digits(changed),
    'latest', record[7], -- where the newest notification begins
    'window_from', digits(window_from), 'window_count', window_count,
    'window_bytes', digits(window_bytes))
  redis.call('PUBLISH', ARGV[2], ARGV[1] .. ' ' .. digits(head))
end
return answers
