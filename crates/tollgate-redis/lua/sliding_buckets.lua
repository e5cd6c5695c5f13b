-- A ring of sub-windows. The Rust of it: sliding_buckets.rs in tollgate-core.
--
-- It is a log whose times are the numbers of sub-windows since the epoch: units of one sub-window
-- are one run, and only sub-windows in which units were charged are stored.
--
-- KEYS     a list: see sliding_log_list.lua
-- ARGV     limit    units
--          span     of a sub-window, in microseconds
--          buckets  how many sub-windows make a window: the ring has one more
--          cost     units
-- RETURNS  see sliding_log.lua, with numbers of sub-windows as times

local function sliding_buckets(limit, span, buckets, cost)
  return sliding_log(list, limit, buckets + 1, cost, span)
end
