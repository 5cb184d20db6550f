-- Semaphores and read-write locks: applies a batch of operations to the records of names in one atomic call, each by the
-- rule of crates/leasehold-core/src/record/mod.rs. The keys, the channels of clients and the reply are those of plain.lua.
--
-- The script consists of this text, rule.lua, and shares.lua.
--
-- The record is a hash:
--
--   .          of a semaphore "permits <how many there are>", and if that was set " <version> <time to keep> <end>";
--              of a read-write lock "access", and if there are readers " <their token>"
--   used       "<how many permits the holders have>[ <no holder ends before>]"; without it they are counted
--   <lease>    a holder: "<permits>[#<number>] <hold count> <first token> <end>[ <when its run was asked for>]"
--
-- Its times are in microseconds, and a hold count of 0 is a minimum hold. It does not expire before its last holder, its
-- queue and its set limit do. A reader has 1 permit, a writer all of them.
--
-- Behind the tokens of a waiter is "x<permits>", or for a read-write lock "y<permits>". Then "#", if it gets a number, or "+",
-- if it holds and waits for more: such a one is the first. The same is behind the token of the message of a grant, but for the
-- mark; then, with a number, "#<number>#<floor>".
--
-- KEYS: for each operation its record, its counter and its queue; for a single operation the record is enough.
-- ARGV: as for plain.lua, where acquire and queue have a claim behind the hold count, and these verbs:
--
--         convert <tokens> <first token> <wait, 0 or 1> <claim>
--         set_limit <permits> <version or -> <time to keep in microseconds>      no lease and no ttl
--
--       A claim is "of <permits> <how many there are>", "numbered" and the same, "access <permits>", or "mutex 1", which cannot be
--       converted to.
--
-- Outcomes beside those of plain.lua:
--
--   granted     with a number {first token, time or nil, completion or nil, number, floor}
--   renewed     1
--   revoked     the revoked leases
--   mismatch    'latch', 'lock', 'semaphore' or 'rwlock': the name is used as one; 'queue': leases wait for it as a mutex,
--               and none holds it; 'weight': more permits than there are; 'conversion': it may not wait; or their number,
--               which is not the requested one
--   elsewhere   0: the name is free or a mutex, so plain.lua decides this operation, and all later ones on it
--
-- Needs the commands GET, SET, TIME, PEXPIRE, PTTL, LINDEX, DEL, HMGET, HSET, HDEL, HGETALL, EXISTS, LLEN and those of the
-- queue, LPUSH among them.

-- See plain.lua.
local RETENTION_MS, TOKEN_MAX, HIGH_STEP = '86400000', 9007199254740991, 1000000

local run, keys, argv = redis.pcall, KEYS, ARGV
local size, at, stamp, admission, floor, high = #keys, 1, nil, nil, nil, nil
local SIZES = {release = 2, propose = 4, note = 5, complete = 6}
for _ = 1, size, 3 do
    at = at + (SIZES[argv[at]] or 3)
end

