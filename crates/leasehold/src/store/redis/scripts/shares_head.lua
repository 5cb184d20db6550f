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
-- If all operations are in their usual form, and each granted token is the time, the call returns the time as text.
-- Otherwise it has these outcomes beside those of plain.lua:
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

local run, keys, argv = redis.pcall, KEYS, ARGV
local size, at, stamp, admission, floor, high = #keys, 1, nil, nil, nil, nil
local SIZES = {release = 2, propose = 4, note = 5, complete = 6}
local results, for_rule = {}, nil

-- Operations in their usual form come first, before the functions of the rule are created: a lease acquires what is free, or
-- is released, and there are no queue, no number, no run and no set limit. Such a one is decided by the rule of shares.lua, at a
-- part of its cost. `for_rule` has the records with other operations, whose later ones are left to the rule.
-- What is the same for many operations of a call is done once: `claims` has claims by their words, `released` the fields that
-- the last release has read, and `is_proven` says that the server allows what a free name needs. `joins` says that a reader has
-- the token of another one.
local claims, released, is_proven, joins = {}, {}, false, false

-- A claim, with the fields of a record whose only holder it is; false if it is not in its usual form.
local function read_claim(words, ttl, now)
    local verb, name, weight, limit = words:match('^(%a+) 1 1 (%a+) (%d+) ?(%d*)$')
    local share, permits = tonumber(weight), tonumber(limit)
    local kind = name == 'of' and permits and 'permits' or name == 'access' and name
    if verb ~= 'queue' and verb ~= 'acquire' or not kind or share > (permits or $ACCESS_LIMIT) then
        return false
    end
    local is_reader, ends = kind == 'access' and share < $ACCESS_LIMIT, now + ttl * 1000
    local number, ends_text = permits and limit or is_reader and stamp, string.format('%.0f', ends)
    return {
        ttl = ttl, millis = string.format('%.0f', ttl + 1), ends = ends,
        kind = kind, weight = share, permits = permits, is_reader = is_reader,
        head = number and kind .. ' ' .. number or kind,
        used = weight .. ' ' .. ends_text,
        row = weight .. ' 1 ' .. stamp .. ' ' .. ends_text,
    }
end

-- The parts of the head and of the holders, if no holder has ended.
local function read_fields(fields, now)
    local kind, number = (fields[1] or ''):match('^(%a+) ?(%d*)$')
    local used, earliest = (fields[2] or ''):match('^(%d+) ?(%d*)$')
    used, earliest = tonumber(used), tonumber(earliest)
    if used and (used == 0 or earliest and now < earliest) then
        return kind, tonumber(number), used, earliest
    end
end

-- Makes the time the last token, if it is later.
local function reserve_time(counter)
    local last = run('SET', counter, stamp, 'PX', '$RETENTION_MS', 'GET')
    if not last or type(last) == 'string' and #last == #stamp and last < stamp then
        return true
    elseif type(last) == 'string' then
        run('SET', counter, last, 'PX', '$RETENTION_MS')
    end
    return false
end

local function acquire_free(record, counter, lease, claim, now)
    if not reserve_time(counter) then
        return false
    end
    -- Changes nothing. It proves that leases can be renewed and released, and that records get their expiry.
    is_proven = is_proven or not run('HMGET', record, '.').err and run('HDEL', record, lease) == 0
        and run('PTTL', record) == -2 and run('PEXPIRE', record, claim.millis) == 0
    if not is_proven or type(run('HSET', record, lease, claim.row, '.', claim.head, 'used', claim.used)) == 'table' then
        return false
    end
    run('PEXPIRE', record, claim.millis)
    return 'granted', now
end

local function acquire_beside(record, counter, lease, claim, now)
    local fields = run('HMGET', record, '.', 'used', lease)
    local kind, number, used, earliest = read_fields(fields, now)
    if fields[3] or kind ~= claim.kind or claim.permits and claim.permits ~= number
        or used + claim.weight > (claim.permits or $ACCESS_LIMIT) then
        return false
    end
    local row, head, token = claim.row, claim.head, now
    if claim.is_reader and number then
        -- Readers share the token of the first one.
        row, head, token = string.format('%.0f 1 %.0f %.0f', claim.weight, number, claim.ends), fields[1], number
    elseif not reserve_time(counter) then
        return false
    end
    local left = run('PTTL', record)
    -- Deletes nothing. It proves that the lease can be released. The expiry comes first: then its refusal changes nothing.
    if run('HDEL', record, lease) ~= 0 or type(left) == 'table'
        or type(run('PEXPIRE', record, math.max(left, claim.ttl + 1))) == 'table' then
        return false
    end
    local state = string.format('%.0f %.0f', used + claim.weight, math.min(earliest or claim.ends, claim.ends))
    if type(run('HSET', record, lease, row, '.', head, 'used', state)) == 'table' then
        return false
    end
    joins = joins or token ~= now
    return 'granted', token
end

local function release(record, queue, lease, now)
    local fields = run('HMGET', record, '.', 'used', lease)
    if not fields[3] or run('EXISTS', queue) ~= 0 then
        return false
    end
    -- Those of leases that were acquired in one call are usually the same.
    if fields[3] ~= released[3] or fields[2] ~= released[2] or fields[1] ~= released[1] then
        local weight, ends = fields[3]:match('^(%d+)#?%d* [1-9]%d* %d+ (%d+)')
        local kind, _, used, earliest = read_fields(fields, now)
        released = fields
        released.used, released.earliest = kind and weight and now < tonumber(ends) and used - weight, earliest
    end
    local used = released.used
    if used == 0 then
        return run('DEL', record) == 1 and 'released', 0
    elseif not used or used < 0 or run('HDEL', record, lease) ~= 1 then
        return false
    end
    -- If the memory is full, the holders are counted.
    if type(run('HSET', record, 'used', string.format('%.0f %.0f', used, released.earliest))) == 'table' then
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
        local outcome, value
        if not (for_rule and for_rule[record]) then
            local counter, queue = keys[i + 1], keys[i + 2]
            if words == 'release' then
                outcome, value = release(record, queue, lease, now)
            else
                local claim, ttl = claims[words], argv[at + 2]
                if claim == nil or claim and claim.ttl ~= ttl then
                    claim = read_claim(words, ttl, now)
                    claims[words] = claim
                end
                -- If the queue exists without a record, there is no head to read.
                local exists = claim and run('EXISTS', record, queue)
                if exists == 0 then
                    outcome, value = acquire_free(record, counter, lease, claim, now)
                elseif exists == 1 then
                    outcome, value = acquire_beside(record, counter, lease, claim, now)
                end
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
    if not (for_rule or joins) then
        return stamp
    elseif not for_rule then
        results[1] = now
        return results
    end
else
    at = at + (SIZES[argv[at]] or 3)
end

