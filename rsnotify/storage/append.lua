-- Append submissions to one channel of one set, as one atom. It begins with journal.lua.
--
-- ARGV  7 .. for each submission: key, seconds to remember it, fingerprint, number of changes, and the
--            changes; the datetime of a change is the Source's own
--
-- Answer: {for each submission, before}. For each it is {from, until, 0}, or {from, until, 1} where the
-- key was known, or {} where the key was used for something else. Where changes had datetimes of their
-- own, {from, until, 0, positions}; otherwise each position is one more than the one before. A change
-- that a load has found is left out, with position 0, if it is newer in the journal.
-- `before` has the entries where these begin, those that the caller has not seen.
-- `behind` if the caller has seen a position that this journal has never had, so it has lost changes;
-- and while somebody repairs it.

if last < tonumber(ARGV[6]) or redis.call('EXISTS', KEYS[6]) == 1 then
  return redis.status_reply('behind')
end

local answers, at, appended, shards = {}, 7, false, {}

-- A Source's own time counts unless it lies in the future or more than a second behind.
local function next_position(own)
  if own == 0 or own > now or own < last - 1000000 then own = now end
  if own <= last then own = last + 1 end
  return own
end

local before, seen = {}, tonumber(ARGV[6])
local function note_beginning(position)
  if seen == 0 or position <= seen then return end
  local id = stream_id(position)
  before[#before + 1] = redis.call('XRANGE', stream, id, id)[1]
end

local known_keys = {} -- idempotency key -> what is remembered of it, or false
local kinds, submission = {}, 7
while submission <= #ARGV do
  local key, count = remembered .. ARGV[submission], tonumber(ARGV[submission + 3])
  local found = redis.pcall('GET', key)
  if type(found) == 'table' then return redis.error_reply('WRONGTYPE ' .. key .. ' is not a string') end
  known_keys[key] = found
  expect_shards(kinds, submission + 4, count)
  submission = submission + 4 + count * 5
end
local damaged = damage(kinds)
if damaged then return damaged end

-- Whether the caller cannot know the positions by itself.
local function must_tell_positions(first, after)
  for i = first, after, 5 do if ARGV[i] ~= '0' or #ARGV[i + 2] > 1 then return true end end
end

-- Whether somebody has changed the resource since the load began, or the load is not under way.
local function is_outdated(i)
  local of_load = load_of(i)
  if of_load == '' then return false end
  return of_load ~= load or redis.call('SISMEMBER', KEYS[7], name_in_shard(i)) == 1
end

local function append(first, count)
  if not appended then note_beginning(head) end -- the others begin where this caller's own end
  local after = first + (count - 1) * 5
  local from, positions = head, must_tell_positions(first, after) and {}
  for i = first, after, 5 do
    local outdated = is_outdated(i)
    if not outdated then
      store(next_position(tonumber(ARGV[i])), i, shards)
      head = last
    end
    if positions then positions[#positions + 1] = outdated and 0 or last end
  end
  return from, positions
end

while at <= #ARGV do
  local key, seconds, fingerprint = remembered .. ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local count = tonumber(ARGV[at + 3])
  local known = known_keys[key]
  if known then
    local known_fingerprint, from, until_ = string.match(known, '^(%S*) (%d+) (%d+)$')
    answers[#answers + 1] = known_fingerprint == fingerprint
      and {tonumber(from), tonumber(until_), 1} or {}
    note_beginning(tonumber(from))
  else
    local from, positions = append(at + 4, count)
    local remember = fingerprint .. ' ' .. digits(from) .. ' ' .. digits(head)
    redis.call('SET', key, remember, 'EX', seconds)
    known_keys[key] = remember
    answers[#answers + 1] = {from, head, 0, positions or nil}
    appended = appended or head > from
  end
  at = at + 4 + count * 5
end

if appended then finish(shards) end
return {answers, before}
