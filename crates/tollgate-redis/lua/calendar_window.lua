-- The window of a calendar: a fixed window whose start and end come from boundaries. In Rust:
-- fixed_window.rs in tollgate-core.
--
-- The caller sends three windows: that of the time which it takes for the server's, the one before
-- and the next. The server's own time chooses among them, so that all callers change windows at
-- once. If that time is in none of them, the window opens with its first request and lasts for
-- `window`. So no count is lost before its time, and the caller knows better after the reply.
--
-- KEYS     as in fixed_window.lua, behind which this file stands
-- ARGV     limit:   units
--          window:  microseconds
--          cost:    units
--          first, second, third, last: the boundaries of the windows in microseconds since the
--                   epoch
-- RETURNS  as fixed_window.lua

local function calendar_window(limit, window, cost, first, second, third, last)
  local from, to = 0, 0
  if now >= first and now < second then
    from, to = first, second
  elseif now >= second and now < third then
    from, to = second, third
  elseif now >= third and now < last then
    from, to = third, last
  end
  return fixed_window(limit, window, 0, cost, 0, from, to)
end
