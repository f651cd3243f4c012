-- Append submissions to one channel of one set, as one atomic step. journal.lua is put before this text.
--
-- ARGV  8 writer, who makes one call after the other   9 number of the call, higher than of the one before
--       10 seconds to remember the call   11 seconds to remember a key
--       .. for each submission: digest of its key, or nothing; fingerprint; bytes that the set may take of
--            Redis with it, or 0; number of changes; and the changes. The datetime of a change is the
--            Source's own
--
-- If the journal has lost something, it gets a gap first. A key is remembered for the submission that came
-- with it: "fingerprint from until" (of a long fingerprint the beginning). Submissions without a key are
-- remembered together, for a repetition of the same call: "number; from until; from until …".
-- A writer makes its next call when it does not wait for this one any more. So a call without a key and
-- with a lower number than the one that is remembered stores nothing: a Redis that was stopped may read it late.
--
-- Answer: {answers, gap, grown}: one answer for each submission; where the gap ends that was left, or 0;
-- by how many bytes the set has grown since it was counted, or -1 if it never was or is full.
-- An answer is {from, until, 0}, or {from, until, 1, mark of its last row} where it was stored before, or {}
-- where its key was used for something else. Where changes had datetimes of their own, {from, until, 0, positions}; otherwise each
-- position is one more than the one before. Where changes say what their resources were, {from, until, 0,
-- positions or none, numbers of these changes, each with what was added to it}. A change that a load has found is left out, with position 0, if
-- it is newer in the journal. A submission for which the set has no room is not stored, and its answer is
-- {0}.

local answers, at, appended, shards = {}, 12, false, {}
local taken = (counted or 0) + grown_before -- by the set, before this call
local is_to_be_counted = not counted

-- A Source's own time counts unless it lies in the future, more than a second behind, or before the
-- moment in which the caller found this Redis: a position before that may be one that was lost.
local function next_position(own)
  if own == 0 or own > now or own < last - 1000000 or own <= found_at then own = now end
  if own <= last then own = last + 1 end
  return own
end

-- What is remembered there; else nil, and why it cannot be read.
local function get(key)
  local found = redis.pcall('GET', key)
  if type(found) ~= 'table' then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return nil, found end
  return nil, redis.error_reply('WRONGTYPE ' .. key .. ' is not a string')
end

local known_keys = {} -- idempotency key -> what is remembered of it, or false
local kinds, submission, call_key = {}, at, nil
while submission <= #ARGV do
  local key, count, wrong = ARGV[submission], tonumber(ARGV[submission + 3])
  if key == '' then
    call_key = remembered .. ARGV[8]
  else
    known_keys[key], wrong = get(remembered .. key)
  end
  if wrong then return wrong end
  expect_shards(kinds, submission + 4, count)
  submission = submission + 4 + count * 5
end
local damaged = damage(kinds)
if damaged then return damaged end

local known_of_call = {} -- what is remembered of each submission without a key
if call_key then
  local found, wrong = get(call_key)
  if wrong then return wrong end
  local number = tonumber(found and string.match(found, '^%d+') or 0)
  if number > tonumber(ARGV[9]) then return redis.error_reply('ERR a later call has been made') end
  if number == tonumber(ARGV[9]) then
    for known in string.gmatch(found, ';([^;]+)') do known_of_call[#known_of_call + 1] = known end
  end
end

-- Whether the caller cannot know the positions by itself.
local function must_tell_positions(first, after)
  for i = first, after, 5 do if ARGV[i] ~= '0' or #ARGV[i + 2] > 1 then return true end end
end

-- Whether somebody has changed the resource since the load began, or the load is not under way.
local function is_outdated(i)
  local of_load = load_of(i)
  if of_load == '' then return false end
  return of_load ~= load or redis.call('SISMEMBER', KEYS[6], name_in_shard(i)) == 1
end

local function append(first_argument, number)
  local after = first_argument + (number - 1) * 5
  local from, positions, said = head, must_tell_positions(first_argument, after) and {}, {}
  for i = first_argument, after, 5 do
    local outdated = is_outdated(i)
    if not outdated then
      close_by_time()
      local former = store(next_position(tonumber(ARGV[i])), i, shards)
      if former ~= '' then
        said[#said + 1], said[#said + 2] = (i - first_argument) / 5, former
      end
      head = last
    end
    if positions then positions[#positions + 1] = outdated and 0 or last end
  end
  if #said > 0 then return from, positions or {}, said end
  return from, positions
end

local KEY = 250 -- bytes that a key takes which is remembered; as in count.lua

local function has_room(most, key, first_argument, number)
  if most == 0 then return true end
  local size = key == '' and 0 or KEY
  for i = first_argument, first_argument + (number - 1) * 5, 5 do size = size + bytes_of(i) end
  return taken + grown + size <= most
end

local function answer_again(known, fingerprint)
  local known_fingerprint, from, until_ = string.match(known, '^(%S*) (%d+) (%d+)$')
  if string.sub(fingerprint, 1, #known_fingerprint) ~= known_fingerprint then return {} end
  local id = stream_id(tonumber(until_))
  local row = redis.call('XRANGE', stream, id, id)[1]
  return {tonumber(from), tonumber(until_), 1, row and string.sub(row[2][1], 1, 6) or ''}
end

local gap = 0
if has_lost() then
  leave_gap()
  gap = last
end

local FULL = 'full' -- is remembered of a submission that was refused
local without_key, is_stored = {}, false
while at <= #ARGV do
  local key, fingerprint, most, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local known = known_keys[key]
  if key == '' then known = known_of_call[#without_key + 1] end
  if not known and not has_room(most, key, at + 4, count) then known = FULL end
  if known == FULL then
    answers[#answers + 1], is_to_be_counted = {0}, true
  elseif known then
    answers[#answers + 1] = answer_again(known, fingerprint)
  else
    local from, positions, said = append(at + 4, count)
    known = fingerprint .. ' ' .. digits(from) .. ' ' .. digits(head)
    if key ~= '' then
      redis.call('SET', remembered .. key, known, 'EX', ARGV[11])
      known_keys[key] = known
      grown, remembered_keys = grown + KEY, remembered_keys + 1
    end
    answers[#answers + 1] = {from, head, 0, positions or nil, said}
    appended = appended or head > from
    is_stored = is_stored or key == ''
  end
  if key == '' then without_key[#without_key + 1] = known end
  at = at + 4 + count * 5
end

if is_stored and #known_of_call == 0 then
  redis.call('SET', call_key, ARGV[9] .. ';' .. table.concat(without_key, ';'), 'EX', ARGV[10])
end
if appended or gap > 0 then finish(shards) end
return {answers, gap, is_to_be_counted and -1 or grown_before + grown}
