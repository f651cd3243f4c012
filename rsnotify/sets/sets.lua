-- Make, edit or remove a set, and notify every hub process: one atomic step, so that no set exists that
-- was announced to nobody. It begins with set_keys.lua.
--
-- KEYS  1 records of the sets (hash)   2 their version   3 when they changed   4 which data they are
--       5 when the first set of a name began that was removed since (hash, by name)
--       6 the set's journals: their records, then    7 of framework changes; in a Cluster neither,
--         for set_in_cluster.lua has begun or removed them before
-- ARGV  1 the act   2 the bell   3 name of the set, then what the act needs
--
-- Answers what became of it, then as it is now: which data it is, the version, when that changed.
-- Whoever finds a record that is not the one expected does nothing.

local records, name = KEYS[1], ARGV[3]
local journals = {KEYS[6], KEYS[7]}
local acts = {}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local AHEAD = 60 * 1000000 -- of the clock, as in records.py: a moment must not run away with a wrong one

-- This moment; or one that was reached before, if the clock has gone back a little since.
local function moment(reached)
  local at = tonumber(reached or 0)
  return at <= now + AHEAD and math.max(at, now) or now
end

local changed = moment(redis.call('GET', KEYS[3]))

-- What a removed set had reached counts as a moment of its own: so a set begins after all that was
-- ever in one of its name.
local function announce(reached)
  redis.call('SET', KEYS[3], string.format('%.0f', math.max(changed, moment(reached))))
  redis.call('INCR', KEYS[2])
  redis.call('PUBLISH', ARGV[2], 'sets')
end

-- Whether others may have changed a set since this version, which is empty if that does not matter.
local function is_outdated(version)
  return version ~= '' and (redis.call('GET', KEYS[2]) or '0') ~= version
end

-- record, position at which its journals begin, the version; the record that there is
function acts.add(record, begin, version)
  if is_outdated(version) then return false end
  if journals[1] then
    if changed > now and tonumber(begin) <= changed then return false end
    begin_journals(journals, begin)
  end
  if redis.call('HSETNX', records, name, record) == 1 then announce() end
  return redis.call('HGET', records, name)
end

-- record as it was read, record to stand in its place, the version
function acts.edit(before, after, version)
  if is_outdated(version) or redis.call('HGET', records, name) ~= before then return 0 end
  redis.call('HSET', records, name, after)
  announce()
  return 1
end

-- a version that some process knows: the next one is higher, also after Redis has lost some
function acts.raise(number)
  if tonumber(redis.call('GET', KEYS[2]) or 0) < tonumber(number) then
    redis.call('SET', KEYS[2], number)
    announce()
  end
  return 1
end

local function note_removal(stored)
  local is_whole, record = pcall(cjson.decode, stored)
  if not is_whole then return end
  redis.call('HSETNX', KEYS[5], name, tostring(record.created))
end

-- It begins with what needs no room: then a Redis that is full lets the rest pass, too.
local function forget(reached)
  local stored = redis.call('HGET', records, name)
  if redis.call('HDEL', records, name) == 0 then return 0 end
  note_removal(stored)
  announce(reached)
  return 1
end

-- as remove_keys
function acts.remove(...)
  local reached = last_of(journals)
  remove_keys(journals, ...)
  return forget(reached)
end

-- record as it was read, and what its journals had reached: what belongs to the set is removed already
function acts.forget(before, reached)
  if redis.call('HGET', records, name) ~= before then return 0 end
  return forget(reached)
end

local outcome = acts[ARGV[1]](unpack(ARGV, 4))
return {outcome, unpack(redis.call('MGET', KEYS[4], KEYS[2], KEYS[3]))}
