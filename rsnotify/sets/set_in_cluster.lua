-- What belongs to a set, in a Cluster, where the records of all sets have a slot of their own: one
-- atomic step, before that of sets.lua. It begins with set_keys.lua.
--
-- KEYS  1 the set's journals: their records, then    2 of framework changes
--       3 a key that never exists: while the Cluster moves the set, this script is not begun
-- ARGV  1 the act, then what it needs

local journals, acts = {KEYS[1], KEYS[2]}, {}

-- position at which its journals begin; answers where they did
function acts.begin(now) return begin_journals(journals, now) end

-- when its journals were begun, as it was read, or nothing; then as remove_keys. Answers what they had
-- reached; nothing if they are others
function acts.remove(created, ...)
  if (redis.call('HGET', journals[1], 'created') or '') ~= created then return false end
  local reached = last_of(journals)
  remove_keys(journals, ...)
  return reached
end

return acts[ARGV[1]](unpack(ARGV, 2))
