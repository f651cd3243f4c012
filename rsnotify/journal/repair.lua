-- Put back what a journal has lost, once for all processes, as one atomic step. journal.lua is put before this text.
--
-- KEYS  8 repaired (hash: position -> b, put back there, or a, stands elsewhere now)
--       9 prefix of the keys of packed windows
-- ARGV  7 `last` as the repair was planned for   8 seconds to remember what was repaired
--       9 number of changes to put back at their datetimes   10 to append again   11 who holds the journal
--       12 number of keys to put back   13 seconds to remember a key
--       .. the changes
--       .. for each change: the note that its row gets, or nothing
--       .. for each change to append again: 1 if the journal still has it, where it is removed; or 0
--       .. for each key to put back: digest, "fingerprint from until"
--       .. positions of lost changes that stand elsewhere already
--
-- Answer: 1, or 0 if the journal has changed since the repair was planned, or somebody else holds it.

if record[1] ~= ARGV[7] or redis.call('GET', KEYS[6]) ~= ARGV[11] then return 0 end

local backs, agains, shards = tonumber(ARGV[9]), tonumber(ARGV[10]), {}
local first_again, notes = 14 + 5 * backs, 14 + 5 * (backs + agains)
local removals = notes + backs + agains
local known = removals + agains
local elsewhere = known + 2 * tonumber(ARGV[12])
local kinds = {[KEYS[8]] = 'hash'}
for i = known, elsewhere - 1, 2 do kinds[remembered .. ARGV[i]] = 'string' end
expect_shards(kinds, 14, backs + agains)
local damaged = damage(kinds)
if damaged then return damaged end

-- A closed window that loses a change is packed and announced again.
local function remove_from_closed(position, size)
  local closed = redis.call('ZRANGEBYSCORE', windows, digits(position), '+inf', 'LIMIT', 0, 1)[1]
  if not closed then return end
  local from, until_, count, bytes = string.match(closed, '^(%d+) (%d+) (%d+) (%d+) ')
  local less = {from, until_, count - 1, digits(bytes - size), digits(changed)}
  redis.call('ZREM', windows, closed)
  redis.call('ZADD', windows, until_, table.concat(less, ' '))
  redis.call('UNLINK', KEYS[9] .. from)
  local settled = redis.call('HGET', channel, 'settled')
  if settled and tonumber(settled) > tonumber(from) then redis.call('HSET', channel, 'settled', from) end
end

local function remove(position, size)
  redis.call('XDEL', stream, stream_id(position))
  redis.call('HSET', channel, 'removed', digits(changed))
  if most_changes == 0 then return end
  if position <= window_from then return remove_from_closed(position, size) end
  window_count, window_bytes = window_count - 1, window_bytes - size
end

local function note_of(i) return ARGV[notes + (i - 14) / 5] end

for i = 14, first_again - 1, 5 do
  store(tonumber(ARGV[i]), i, shards, note_of(i))
  redis.call('HSET', KEYS[8], ARGV[i], 'b')
  head = last
end
last = math.max(last, tonumber(ARGV[6]))
for i = first_again, notes - 1, 5 do
  if ARGV[removals + (i - first_again) / 5] == '1' then
    remove(tonumber(ARGV[i]), tonumber(ARGV[i + 3]) + FILLED)
  end
  local note = note_of(i)
  store(math.max(now, last + 1), i, shards, note)
  if note ~= '' then
    local fingerprint, length = string.match(note, '^([^.]*)%.(%x+)', 13)
    local interval = fingerprint .. ' ' .. digits(last - tonumber(length, 16)) .. ' ' .. digits(last)
    redis.call('SET', remembered .. string.sub(note, 1, 12), interval, 'EX', ARGV[13])
  end
  redis.call('HSET', KEYS[8], ARGV[i], 'a')
  head = last
end
for i = known, elsewhere - 1, 2 do
  redis.call('SET', remembered .. ARGV[i], ARGV[i + 1], 'EX', ARGV[13], 'NX')
end
for i = elsewhere, #ARGV do redis.call('HSET', KEYS[8], ARGV[i], 'a') end
redis.call('EXPIRE', KEYS[8], ARGV[8])
finish(shards)
return 1
