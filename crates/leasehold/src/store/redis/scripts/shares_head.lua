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

-- The permits of a read-write lock, which are all the writer's: see Access in crates/leasehold-core/src/record/rows.rs.
local FULL = 2147483649

local run, keys, argv = redis.pcall, KEYS, ARGV
local size, at, stamp, admission, floor, high = #keys, 1, nil, nil, nil, nil
local SIZES = {release = 2, propose = 4, note = 5, complete = 6}
local results, for_rule = {}, nil

-- Operations in their usual form come first, before the functions of the rule are created: a lease acquires what is free, or
-- is released, and there are no queue, no number, no run and no set limit. Such a one is decided by the rule of shares.lua, at a
-- part of its cost. `for_rule` has the records with other operations, whose later ones are left to the rule.
local plain = {}

-- The parts of the head and of the holders, if no holder has ended.
function plain.read(fields, now)
    local kind, words = string.match(fields[1] or '', '^(%a+) ?(%d*)$')
    local used, earliest = string.match(fields[2] or '', '^(%d+) ?(%d*)$')
    used, earliest = tonumber(used), tonumber(earliest)
    if used and (used == 0 or earliest and now < earliest) then
        return kind, tonumber(words), used, earliest
    end
end

function plain.acquire(record, counter, queue, lease, ttl, words, now)
    local fields, name, weight, permits = run('HMGET', record, '.', 'used', lease), string.match(words, '^(%a+) (%d+) ?(%d*)$')
    weight, permits = tonumber(weight), tonumber(permits) or FULL
    if fields.err or fields[3] or run('EXISTS', record, queue) ~= (fields[1] and 1 or 0) then
        return false
    end
    local kind, number, used, earliest = plain.read(fields, now)
    if not fields[1] then
        kind, number, used = name == 'of' and 'permits' or name, name == 'of' and permits or nil, 0
    end
    local matches = name == 'of' and kind == 'permits' and number == permits or name == 'access' and kind == 'access'
    if not (matches and used) or used + weight > permits then
        return false
    end
    -- Readers share the token of the first one.
    local token = name == 'access' and weight < FULL and number or now
    if token == now then
        local last = run('SET', counter, stamp, 'PX', RETENTION_MS, 'GET')
        if last and not (type(last) == 'string' and #last == #stamp and last < stamp) then
            if type(last) == 'string' then
                run('SET', counter, last, 'PX', RETENTION_MS)
            end
            return false
        end
    end
    if name == 'access' then
        number = weight < FULL and token or nil
    end
    local ends, left, millis = now + ttl * 1000, run('PTTL', record), ttl + 1
    -- Deletes nothing. It proves that the lease can be released. The expiry comes first: then its refusal changes nothing.
    if run('HDEL', record, lease) ~= 0 or type(left) == 'table'
        or type(run('PEXPIRE', record, math.max(left, millis))) == 'table' then
        return false
    end
    local head = number and string.format('%s %.0f', kind, number) or kind
    local state = string.format('%.0f %.0f', used + weight, math.min(earliest or ends, ends))
    local row = string.format('%.0f 1 %.0f %.0f', weight, token, ends)
    if type(run('HSET', record, lease, row, '.', head, 'used', state)) == 'table' then
        return false
    elseif left == -2 then
        run('PEXPIRE', record, millis)
    end
    return 'granted', token
end

function plain.release(record, queue, lease, now)
    local fields = run('HMGET', record, '.', 'used', lease)
    if fields.err or not fields[3] or run('EXISTS', queue) ~= 0 then
        return false
    end
    local kind, number, used, earliest = plain.read(fields, now)
    local weight, ends = string.match(fields[3], '^(%d+)#?%d* [1-9]%d* %d+ (%d+)')
    if not (kind and used and weight) or now >= tonumber(ends) then
        return false
    end
    used = used - weight
    if used == 0 then
        return run('DEL', record) == 1 and 'released', 0
    elseif run('HDEL', record, lease) ~= 1 then
        return false
    end
    -- If the memory is full, the holders are counted.
    if type(run('HSET', record, 'used', string.format('%.0f %.0f', used, earliest))) == 'table' then
        run('HDEL', record, 'used')
    end
    return 'released', 0
end

-- A call with one key is about a slot that is being migrated, where only the record may be read: the rule decides.
if size > 1 then
    local time = run('TIME')
    if time.err then
        return {'TIME', time.err}
    end
    local now = time[1] * 1000000 + time[2]
    stamp = string.format('%.0f', now)
    for i = 1, size, 3 do
        local record, words, lease = keys[i], argv[at], argv[at + 1]
        local outcome, value = false, nil
        if not (for_rule and for_rule[record]) then
            local claim = string.match(words, '^acquire 1 1 (.*)$') or string.match(words, '^queue 1 1 (.*)$')
            if claim then
                outcome, value = plain.acquire(record, keys[i + 1], keys[i + 2], lease, argv[at + 2], claim, now)
            elseif words == 'release' then
                outcome, value = plain.release(record, keys[i + 2], lease, now)
            end
        end
        if outcome then
            local place = (i + 2) / 3 * 2
            results[place], results[place + 1] = outcome, value
        else
            for_rule = for_rule or {}
            for_rule[record] = true
        end
        at = at + (SIZES[words] or 3)
    end
    if not for_rule then
        results[1] = now
        return results
    end
else
    at = at + (SIZES[argv[at]] or 3)
end

