-- Stores a page of usage, in place of an earlier page of the same process.
--
-- KEYS[1]  a hash: the pages of a minute, by process
-- ARGV[1]  the process
-- ARGV[2]  the page
-- ARGV[3]  how long the minute is kept from now on, in milliseconds
-- RETURNS  nothing

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
