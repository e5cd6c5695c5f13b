-- A ring of sub-windows. In Rust: sliding_buckets.rs in tollgate-core.
--
-- It is a log whose times are numbers of sub-windows since the epoch. The units of one sub-window
-- are one run. Only sub-windows with a charge are stored.
--
-- KEYS     a list: see sliding_log_list.lua
-- ARGV     limit    units
--          span     the length of a sub-window in microseconds
--          buckets  the number of sub-windows in a window; the ring has one more
--          cost     units
-- RETURNS  see sliding_log.lua, with numbers of sub-windows as times

local function sliding_buckets(limit, span, buckets, cost)
  return sliding_log(list, limit, buckets + 1, cost, span)
end
