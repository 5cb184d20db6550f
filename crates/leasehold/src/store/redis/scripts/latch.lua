-- The latch: counts arrivals, and removes latches. Applies the rule of crates/leasehold-core/src/record/latch.rs.
--
-- A latch is a hash in the key of the record of its name, so that a name which is used as a lock and as a latch is
-- noticed by both: see plain.lua. The field "." has its status, "latch <number of arrivals> <count>", which is read by one
-- command, and each arrival has a field ":<id>". So an arrival costs the same however many have arrived. The hash expires
-- by itself.
--
-- KEYS: for each operation its record. The queue of the lock of that name, the same and ":queue", is read as well, if there
--       is no record: it is not declared, so that a latch is used while its slot moves to another node of a cluster.
-- ARGV: for each operation three values:
--
--         arrive <count>, the id, and for how long the latch is kept in ms
--         remove, '', ''
--
-- Returns a flat list as plain.lua does, with 0 for the time, and for each operation an outcome and a value:
--
--   failed      {command, error, key}: the server refused the command, or the key has another value; nothing was changed
--   arrived     {number of arrivals, count}
--   removed     1 if there was a latch, else 0
--   mismatch    'lock': a lease holds what has this name; 'queue': leases wait for the lock and none holds it;
--               'semaphore queue', 'rwlock queue': leases hold it or wait for it; or the count that the latch has

local run, keys, argv = redis.pcall, KEYS, ARGV

-- The number of arrivals and the count of a latch; nothing if the name is free. If it is used otherwise, also an outcome and
-- a value.
local function read(record)
    local status = run('HGET', record, '.')
    if type(status) == 'table' then
        local held = run('GET', record)
        if type(held) == 'string' and string.byte(held, 33) == string.byte(':') then
            return nil, nil, 'mismatch', 'lock'
        end
        return nil, nil, 'failed', {'HGET', status.err, record}
    end
    local arrived, count = string.match(status or '', '^latch (%d+) (%d+)$')
    if arrived then
        return tonumber(arrived), tonumber(count)
    end
    local kind = string.match(status or '', '^permits %d') and 'semaphore' or status and 'rwlock'
    if kind == 'semaphore' or string.match(status or '', '^access') then
        return nil, nil, 'mismatch', kind .. ' queue'
    end
    -- Each by itself: the keys may be at two nodes while the slot moves.
    local exists = run('EXISTS', record)
    if type(exists) == 'table' then
        return nil, nil, 'failed', {'EXISTS', exists.err, record}
    elseif exists == 1 then
        return nil, nil, 'failed', {'HGET', 'WRONGTYPE this hash is no latch', record}
    elseif run('EXISTS', record .. ':queue') == 1 then
        return nil, nil, 'mismatch', 'queue'
    end
end

local function arrive(record, id, count, ttl)
    local arrived, stored, outcome, value = read(record)
    if outcome then
        return outcome, value
    elseif stored and stored ~= count then
        return 'mismatch', stored
    end
    arrived = arrived or 0
    local known = arrived > 0 and (arrived >= count or run('HEXISTS', record, ':' .. id))
    if type(known) == 'table' then
        return 'failed', {'HEXISTS', known.err, record}
    elseif known == true or known == 1 then
        return 'arrived', {arrived, count}
    end
    local left = run('PTTL', record)
    if type(left) == 'table' then
        return 'failed', {'PTTL', left.err, record}
    end
    -- Before the arrival, so that its refusal leaves no arrival behind; a new hash gets its expiry behind it.
    local reply = arrived > 0 and left < tonumber(ttl) and run('PEXPIRE', record, ttl)
    if type(reply) == 'table' then
        return 'failed', {'PEXPIRE', reply.err, record}
    end
    reply = run('HSET', record, ':' .. id, '', '.', string.format('latch %d %d', arrived + 1, count))
    if type(reply) == 'table' then
        return 'failed', {'HSET', reply.err, record}
    end
    reply = arrived == 0 and run('PEXPIRE', record, ttl)
    if type(reply) == 'table' then
        run('DEL', record)
        return 'failed', {'PEXPIRE', reply.err, record}
    end
    return 'arrived', {arrived + 1, count}
end

local function remove(record)
    local arrived, _, outcome, value = read(record)
    if outcome or not arrived then
        return outcome or 'removed', value or 0
    end
    local removed = run('DEL', record)
    if type(removed) == 'table' then
        return 'failed', {'DEL', removed.err, record}
    end
    return 'removed', removed
end

local results = {0}
for i, record in ipairs(keys) do
    local verb, id, ttl = argv[3 * i - 2], argv[3 * i - 1], argv[3 * i]
    local count, outcome, value = tonumber(string.match(verb, '^arrive (%d+)$')), nil, nil
    if count then
        outcome, value = arrive(record, id, count, ttl)
    else
        outcome, value = remove(record)
    end
    results[2 * i], results[2 * i + 1] = outcome, value
end
return results
