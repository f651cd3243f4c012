-- What append.lua and look.lua have in common; both begin with this text. It reads where one channel of
-- one set stands, and has the functions that find a loss and that store a change.
--
-- KEYS  1 stream   2 record (hash: see rsnotify.journal.window.JournalRecord, and `latest`)
--       3 windows (sorted set: until of a closed window -> "from until count bytes closed")
--       4 prefix of the 256 hashes that hold the set's current state; beside each, if the set keeps its
--         tombstones, one of where each resource ended that is no more: loc -> position
--       5 prefix of the keys of what is remembered of appends
--       6 what was changed since a load of the whole state began (set, see loads.lua)
--       7 record of the set's change journal, which says what the set takes of Redis: `counted` bytes when
--         count.lua looked last, `grown` since, by estimate; and how many `keys` were remembered
-- ARGV  1 name of the channel, of the caller, and after a colon the mark of this call: six characters,
--         as the bell says them   2 the bell, or nothing if replicas confirm it first
--       3 changes a window holds, 0 for a channel without windows   4 bytes it holds
--       5 microseconds between the edges of the grid on which windows close
--       6 what the caller knows of the journal: the newest position that anybody was given, and after
--         it changes that were there, " position:mark" of each
--       7 the moment in which the caller found this Redis
--
-- A change is five arguments: a datetime in microseconds or 0, state shard or -1, d (deleted) or u,
-- bytes of its XML, its fragment in the short form: there `\1`, the escaped loc and `\2` come first.
-- If a load has found the change, its token follows the d or u.
--
-- A channel that does not exist answers nil; one of whose keys is not what it should be an error, and
-- nothing is written.

local stream, channel, windows = KEYS[1], KEYS[2], KEYS[3]
local record = redis.call('HMGET', channel, 'last', 'window_from', 'window_count', 'window_bytes',
  'changed', 'created', 'head', 'first', 'load', 'gaps', 'says_former', 'tombstones', 'newest',
  'counted', 'grown', 'keys')
if not record[1] then return nil end

local last, window_from = tonumber(record[1]), tonumber(record[2])
local window_count, window_bytes = tonumber(record[3]), tonumber(record[4])
local most_changes, most_bytes, period = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local newest_edge = now - 1 - (now - 1) % period -- of the grid, that has passed
local changed = math.max(now, tonumber(record[5]) + 1)
local remembered = KEYS[5] .. record[6] .. ':' -- a set made anew remembers nothing of the old one
-- The newest change, or the later point at which the stream now begins; `last` may be later than both.
local first = tonumber(record[8])
local head = math.max(tonumber(record[7]), first)
local load = record[9] -- the token of the load that is under way
local gaps = record[10] -- where each ends, the newest last
local says_former = record[11] -- since when changes say what their resources were; false if they do not
local keeps_tombstones = record[12] -- since when the set does; false if it does not
local mark = string.sub(ARGV[1], -6)
local found_at = tonumber(ARGV[7])
local FILLED = 54 -- bytes by which the position lengthens a fragment, at most
local grown, remembered_keys = 0, 0 -- by this call
-- What the set takes stands in this record, or in that of the set's change journal.
local of_set, has_own_sizes = {record[14], record[15], record[16], record[6]}, KEYS[7] == channel
if not has_own_sizes then of_set = redis.call('HMGET', KEYS[7], 'counted', 'grown', 'keys', 'created') end
local counted, grown_before, keys_before = of_set[1] and tonumber(of_set[1]), tonumber(of_set[2] or 0), tonumber(of_set[3] or 0)

-- Positions are below 2^53, so a Lua number holds them exactly; %.0f writes all their digits.
local function digits(number) return string.format('%.0f', number) end

local function stream_id(position)
  local microseconds = position % 1000
  return string.format('%.0f-%d', (position - microseconds) / 1000, microseconds)
end

-- What a script has written is not undone when it fails: so it looks at every key first. `kinds` has
-- what kind of value is expected at a key; the changes stand in ARGV from `first` on.
local TOMBSTONES = ':tombstones'
local function expect_shards(kinds, first, count)
  for i = first + 1, first + 5 * count, 5 do
    if ARGV[i] ~= '-1' then
      kinds[KEYS[4] .. ARGV[i]] = 'hash'
      if keeps_tombstones then kinds[KEYS[4] .. ARGV[i] .. TOMBSTONES] = 'hash' end
    end
  end
end

local has_stream = false -- as far as `damage` has seen
local function damage(kinds)
  kinds[stream], kinds[windows] = 'stream', 'zset'
  if load then kinds[KEYS[6]] = 'set' end
  for key, kind in pairs(kinds) do
    local found = redis.call('TYPE', key).ok
    has_stream = has_stream or found == 'stream'
    if found ~= 'none' and found ~= kind then
      return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. found .. ' instead of a ' .. kind)
    end
  end
end

local function close_window(edge)
  local window = {digits(window_from), digits(edge), window_count, digits(window_bytes), digits(changed)}
  redis.call('ZADD', windows, digits(edge), table.concat(window, ' '))
  window_from, window_count, window_bytes = edge, 0, 0
end

-- The window is over once an edge of the grid has passed, although nobody has closed it yet, or Redis
-- has lost that somebody did: whoever has its list reads on from the edge, so nothing comes before that.
local function close_by_time()
  if most_changes > 0 and window_count > 0 and newest_edge > window_from and newest_edge >= last then
    close_window(newest_edge)
    last = newest_edge
  end
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

-- Its escaped loc, and the rest.
local function parts_of(fragment)
  local loc_end = string.find(fragment, '\2', 2, true)
  return string.sub(fragment, 2, loc_end - 1), string.sub(fragment, loc_end)
end

local ends = {} -- of what this call deletes: loc -> position
local function fold(shards, shard, gone, fragment)
  if shard == '-1' then return end
  local loc, rest = parts_of(fragment)
  local state = shards[shard]
  if not state then state = {}; shards[shard] = state end
  state[loc] = not gone and digits(last) .. rest
  if gone and keeps_tombstones then ends[loc] = digits(last) end
end

local function write_hash(key, set, del)
  for i = 1, #set, 4000 do redis.call('HSET', key, unpack(set, i, math.min(i + 3999, #set))) end
  for i = 1, #del, 4000 do redis.call('HDEL', key, unpack(del, i, math.min(i + 3999, #del))) end
end

-- A resource has a value in the state, or a tombstone.
local function write_tombstones(key, state)
  local set, del = {}, {}
  for loc, value in pairs(state) do
    if value then del[#del + 1] = loc else set[#set + 1] = loc; set[#set + 1] = ends[loc] end
  end
  write_hash(key .. TOMBSTONES, set, del)
end

local function write_state(shards)
  for shard, state in pairs(shards) do
    local set, del = {}, {}
    for loc, value in pairs(state) do
      if value then set[#set + 1] = loc; set[#set + 1] = value else del[#del + 1] = loc end
    end
    write_hash(KEYS[4] .. shard, set, del)
    if keeps_tombstones then write_tombstones(KEYS[4] .. shard, state) end
  end
end

local function name_in_shard(i)
  return ARGV[i + 1] .. ' ' .. (parts_of(ARGV[i + 4]))
end

local function load_of(i) return string.sub(ARGV[i + 2], 2) end

-- What others change while a load is under way is newer than what it brings.
local function note_newer(i)
  if load and load_of(i) == '' and ARGV[i + 1] ~= '-1' then
    redis.call('SADD', KEYS[6], name_in_shard(i))
  end
end

-- What the change at ARGV[i] takes, at most: in the stream and in the state, each with what Redis adds.
local function bytes_of(i) return math.floor(2.5 * #ARGV[i + 4]) + 200 end

-- What a change says of its resource: the media type with the phrase before it, or nothing; the collections.
local TYPED, VALUE = '[\12\24-\26][^%z\1-\31"]*', '[^%z\1-\31"]*'
local function described(fragment)
  local media_type, collections = nil, {}
  for part in string.gmatch(fragment, '[^\20\22]+') do
    if not media_type then
      media_type = string.match(part, TYPED) or ''
    else
      local relation, target = string.match(part, '^([^\21]*)\21(' .. VALUE .. ')')
      if relation and string.lower(relation) == 'collection' then collections[#collections + 1] = target end
    end
  end
  return media_type, collections
end

-- What is known of the resource before the change at ARGV[i]; nil or false if nothing is.
local function known_before(i, loc, shards)
  local state = shards[ARGV[i + 1]]
  if state and state[loc] ~= nil then return state[loc] end
  return redis.call('HGET', KEYS[4] .. ARGV[i + 1], loc)
end

-- The links by which a change says what its resource was, as change_filter.py reads them: its media type
-- and its collections, where one of them is another now, or the resource is no more. And their bytes in XML.
local FORMER, FORMER_BYTES = '\20urn:rsnotify:former\21', 64
local function former_of(i, gone, shards)
  if not says_former or ARGV[i + 1] == '-1' then return '', 0 end
  local loc, rest = parts_of(ARGV[i + 4])
  local before = known_before(i, loc, shards)
  if not before then return '', 0 end
  local media_type, collections = described(before)
  local new_type, new_collections = described(rest)
  local is_same = media_type == new_type and table.concat(collections, ' ') == table.concat(new_collections, ' ')
  if is_same and not gone then return '', 0 end
  if #collections == 0 then collections[1] = loc end
  local links, size = {}, 0
  for number, target in ipairs(collections) do
    links[number] = FORMER .. target .. media_type
    size = size + FORMER_BYTES + #target + #media_type
  end
  return table.concat(links), size
end

-- Store the change that stands at ARGV[i]; nothing may be at or after its position. Answers what it says
-- of what its resource was, in the short form, which is not part of the set's state.
local function store(position, i, shards)
  local gone = string.sub(ARGV[i + 2], 1, 1) == 'd'
  local former, longer = former_of(i, gone, shards)
  local size = tonumber(ARGV[i + 3]) + FILLED + longer
  make_room(position, size)
  last = position
  local fragment = ARGV[i + 4]
  if former ~= '' then fragment = string.sub(fragment, 1, -2) .. former .. '\3' end
  redis.call('XADD', stream, stream_id(last), mark, fragment)
  grown = grown + bytes_of(i) + longer
  fold(shards, ARGV[i + 1], gone, ARGV[i + 4])
  note_newer(i)
  count_in_window(size)
  return former
end

local function finish(shards)
  write_state(shards)
  local sizes = {'grown', digits(grown_before + grown), 'keys', digits(keys_before + remembered_keys)}
  redis.call('HSET', channel, 'last', digits(last), 'head', digits(head), 'changed', digits(changed),
    'latest', record[7], -- where the newest notification begins
    'window_from', digits(window_from), 'window_count', window_count, 'window_bytes', digits(window_bytes),
    'newest', digits(head) .. ':' .. mark, unpack(has_own_sizes and sizes or {}))
  if not has_own_sizes and of_set[4] then redis.call('HSET', KEYS[7], unpack(sizes)) end
  if ARGV[2] ~= '' then redis.call('PUBLISH', ARGV[2], ARGV[1] .. ' ' .. digits(head)) end
end

-- Whether the journal lacks what the caller knows to have been there. Nobody is past its newest gap who
-- has not been told; and what was before the stream begins may be trimmed.
local function has_lost()
  local given, newest_gap = tonumber(string.match(ARGV[6], '^%d+')), tonumber(string.match(gaps or '0', '%d+$'))
  if given <= newest_gap then return false end
  if given > last then return true end
  for position, known in string.gmatch(ARGV[6], ' (%d+):(%S*)') do
    local at = tonumber(position)
    -- The record says so, and was written together with the stream.
    local is_newest = has_stream and position .. ':' .. known == record[13]
    if at > math.max(first, newest_gap) and not is_newest then
      local row = redis.call('XRANGE', stream, stream_id(at), stream_id(at))[1]
      if not row or string.sub(row[2][1], 1, 6) ~= known then return true end
    end
  end
  return false
end

-- Say that changes are lost: nobody passes the end of a gap without being told. It lies at the end of the
-- journal, also if others have appended since: so whoever has read on before the loss was seen is told, too.
-- The open window closes with what is left; the next one, and the next notification, begin where the gap ends.
local function leave_gap()
  local given = tonumber(string.match(ARGV[6], '^%d+'))
  if window_count > 0 then close_window(head) end
  last = math.max(given + 1, last + 1, now)
  head, window_from, record[7] = last, last, digits(last)
  local left = {} -- what was before the stream begins ends there anyway
  for gap in string.gmatch(gaps or '', '%d+') do
    if tonumber(gap) > first then left[#left + 1] = gap end
  end
  left[#left + 1] = digits(last)
  gaps = table.concat(left, ' ')
  redis.call('HSET', channel, 'gaps', gaps)
end
