-- A claim: "token beat", where the beat moves whenever its holder keeps it up.
--
-- KEYS  1 claim
-- ARGV  1 the act   2 token of who acts, then what the act needs
--
-- It ends by itself when Redis's clock says so; whoever has seen the very same beat for that long by
-- a clock of their own need not wait for a Redis whose clock has gone back.

local key, token = KEYS[1], ARGV[2]
local acts = {}

local function holder() return string.match(redis.call('GET', key) or '', '^%S*') end

-- milliseconds, what may be overruled; answers what stands there
function acts.take(milliseconds, stale)
  local held = redis.call('GET', key)
  if held and held ~= stale then return held end
  redis.call('SET', key, token .. ' 0', 'PX', milliseconds)
  return token .. ' 0'
end

-- milliseconds; answers 1, or 0 if the claim is lost
function acts.keep_up(milliseconds)
  if holder() ~= token then return 0 end
  local beat = tonumber(string.match(redis.call('GET', key), '%d+$'))
  redis.call('SET', key, token .. ' ' .. (beat + 1), 'PX', milliseconds)
  return 1
end

-- also if the work it is for has begun, or nobody knows whether it has: then `+` follows the token
function acts.release()
  local held = holder()
  if held == token or held == token .. '+' then redis.call('DEL', key) end
  return 1
end

return acts[ARGV[1]](unpack(ARGV, 3))
