-- Look whether a journal has all that the caller knows of it; if not, leave a gap. It begins with journal.lua.
--
-- Answer: where its newest gap ends, or 0.

local damaged = damage({})
if damaged then return damaged end

if has_lost() then
  leave_gap()
  finish({})
end
return tonumber(string.match(gaps or '0', '%d+$'))
