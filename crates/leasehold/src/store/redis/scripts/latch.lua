-- Counts an arrival at a latch, or removes the latch. Applies the rule of crates/leasehold-core/src/record/latch.rs.
--
-- A latch is a list in the key of the record of its name, so that a name which is used as a lock and as a latch is
-- noticed by both: see mutex.lua. It has two elements for each arrival, ":<id>", by which it is found, and
-- "latch <number of arrivals> <count>". So the last element is its status, which is read by one command. It expires by
-- itself. All commands are also those of locks.
--
-- KEYS: the record, and the queue of its lock.
-- ARGV: the id, the count, and for how long the latch is kept in ms; or nothing, to remove it.
--
-- Returns {0, arrivals, count} for an arrival, and {0, 1} if there was a latch to remove, else {0, 0}; {1, count} if the
-- latch has another count; {2} if a lease holds the lock with this name; {3} if leases wait for it and none holds it; or
-- {command, error, key} if the server refused a command, or the key has another value. Then nothing was changed.

local run, record, id, count, ttl = redis.pcall, KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local last = run('LINDEX', record, -1)
if type(last) == 'table' then
    local held = run('GET', record)
    if type(held) == 'string' and string.byte(held, 33) == string.byte(':') then
        return {2}
    end
    return {'LINDEX', last.err, record}
end
local arrived, stored = string.match(last or 'latch 0 ' .. (count or 0), '^latch (%d+) (%d+)$')
if not arrived then
    return {'LINDEX', 'WRONGTYPE this list is no latch', record}
elseif not last and run('EXISTS', KEYS[2]) == 1 then
    return {3}
end

if not id then
    local removed = run('DEL', record)
    if type(removed) == 'table' then
        return {'DEL', removed.err, record}
    end
    return {0, removed}
elseif stored ~= count then
    return {1, tonumber(stored)}
end

arrived, count = tonumber(arrived), tonumber(count)
if arrived >= count then
    return {0, arrived, count}
end
local known = run('LPOS', record, ':' .. id)
if type(known) == 'table' then
    return {'LPOS', known.err, record}
elseif known then
    return {0, arrived, count}
end

local left = run('PTTL', record)
if type(left) == 'table' then
    return {'PTTL', left.err, record}
end
arrived = arrived + 1
-- The first write: it detects a full memory.
local reply = run('RPUSH', record, ':' .. id, 'latch ' .. arrived .. ' ' .. count)
if type(reply) == 'table' then
    return {'RPUSH', reply.err, record}
end
reply = left < tonumber(ttl) and run('PEXPIRE', record, ttl)
if type(reply) == 'table' then
    run('LTRIM', record, 0, -3)
    return {'PEXPIRE', reply.err, record}
end
return {0, arrived, count}
