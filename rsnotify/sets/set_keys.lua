-- What belongs to a set besides its record: sets.lua and set_in_cluster.lua begin with this.

-- Journals that begin at this position, unless there are some. Answers when they were begun.
local function begin_journals(journals, now)
  if redis.call('HEXISTS', journals[1], 'created') == 0 then redis.call('HSET', journals[1], 'counted', 0) end
  for _, journal in ipairs(journals) do
    for _, field in ipairs({'created', 'first', 'last', 'head', 'window_from', 'changed', 'settled', 'told'}) do
      redis.call('HSETNX', journal, field, now)
    end
    redis.call('HSETNX', journal, 'window_count', 0)
    redis.call('HSETNX', journal, 'window_bytes', 0)
  end
  return redis.call('HGET', journals[1], 'created')
end

-- The last position that one of them has reached. What is damaged can be removed all the same.
local function last_of(journals)
  local reached = '0'
  for _, journal in ipairs(journals) do
    local last = redis.pcall('HGET', journal, 'last')
    if type(last) == 'string' and tonumber(last) > tonumber(reached) then reached = last end
  end
  return reached
end

local function remove_snapshot(prefix, name)
  for number = 1, redis.call('HGET', prefix .. name, 'parts') or 0 do
    redis.call('UNLINK', prefix .. name .. ':' .. number)
  end
  redis.call('UNLINK', prefix .. name)
end

-- sorted set of its windows, what the names of packed windows begin with; newest snapshot, what the
-- names of snapshots begin with, sorted set of those that are kept; then every other key that it has
local function remove_keys(journals, windows, packed, snapshot, snapshots, archive, ...)
  for _, window in ipairs(redis.call('ZRANGE', windows, 0, -1)) do
    redis.call('UNLINK', packed .. string.match(window, '^%d+'))
  end
  local newest = redis.call('HGET', snapshot, 'name')
  if newest then remove_snapshot(snapshots, newest) end
  for _, old in ipairs(redis.call('ZRANGE', archive, 0, -1)) do remove_snapshot(snapshots, old) end
  redis.call('UNLINK', snapshot, archive, windows, journals[1], journals[2], ...)
end

