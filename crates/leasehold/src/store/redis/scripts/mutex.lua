-- The mutex: a batch of operations on the records of names, each by the rule that
-- crates/leasehold-core/src/mutex.rs states, in one atomic call.
--
-- What stands in the server, for a name in a tenant of a namespace:
--
--   <namespace>:{<tenant>:<name>}         the record: a hash with one field,
--                                         <client id>:<number> -> hold count in decimal,
--                                         which expires when the lease does
--   <namespace>:{<tenant>:<name>}:token   the counter: the last token given out, in decimal,
--                                         which expires a day after the last grant
--
-- Only this script writes either. Braces keep both in one slot of a cluster.
--
-- KEYS: for each operation its record and its counter.
-- ARGV: for each operation five values: verb, lease, hold count, ttl in ms, tokens to reserve.
--       Verbs: acquire, renew, release (with the count that remains), revoke.
--
-- Answers with a flat list: the server's time in microseconds, then for each operation a code and
-- a value:
--
--   0  lost        0
--   1  granted     the first of the reserved tokens
--   2  refused     what is left of the holder's lease in ms, -1 if it has no end
--   3  renewed     0
--   4  released    the hold count that remains
--   5  revoked     the lease that was cut off, or nil
--   6  exhausted   0: the counter is used up, or not one of ours
--   7  failed      {command, error}: the server refused that command, nothing was changed
--
-- If the server refuses even TIME, the whole answer is {command, error}.
--
-- An error in one operation touches no other: every command is called by pcall. Needs the commands
-- HGET, HSET, HDEL, PEXPIRE, PTTL, GET, SET and TIME; for revoke also HGETALL and DEL. Whoever
-- lacks one of the former is granted nothing, so nobody holds what he cannot renew or release.

local LOST, GRANTED, REFUSED, RENEWED, RELEASED, REVOKED, EXHAUSTED, FAILED =
    0, 1, 2, 3, 4, 5, 6, 7

-- A day, and the largest whole number that a Lua number and JSON hold exactly.
local RETENTION_MS, TOKEN_MAX = '86400000', 9007199254740991

local run, format, find, type = redis.pcall, string.format, string.find, type

local time = run('TIME')
if time.err then
    return {'TIME', time.err}
end
local now = time[1] * 1000000 + time[2]

local function failed(command, reply)
    return FAILED, {command, reply.err}
end

-- The hold count if the lease holds the record, else false, and what is left of the record in ms: -1
-- if it has no end, -2 if there is none. Or a third and fourth value: what failed and how.
local function look(record, lease)
    local held = run('HGET', record, lease)
    if type(held) == 'table' then
        return nil, nil, 'HGET', held
    end
    local left = run('PTTL', record)
    if type(left) == 'table' then
        return nil, nil, 'PTTL', left
    end
    return held, left
end

-- Writes hold count and ttl, unless more than the ttl is `left`: nothing but the last release
-- shortens a lease. `before` is the count to go back to, or false if there was no record.
local function write(record, lease, count, ttl, before, left)
    local reply = run('HSET', record, lease, count)
    if type(reply) == 'table' then
        return 'HSET', reply
    end
    if left >= tonumber(ttl) then
        return
    end
    reply = run('PEXPIRE', record, ttl)
    if type(reply) == 'table' then
        if before then
            run('HSET', record, lease, before)
        else
            run('HDEL', record, lease)
        end
        return 'PEXPIRE', reply
    end
end

local function acquire(record, counter, lease, count, ttl, tokens)
    local before, left, command, reply = look(record, lease)
    if command then
        return failed(command, reply)
    elseif not before and left ~= -2 then
        return REFUSED, left
    end

    local last = run('GET', counter)
    if type(last) == 'table' then
        return failed('GET', last)
    elseif last then
        last = find(last, '^%d+$') and tonumber(last)
        if not last or last > TOKEN_MAX then
            return EXHAUSTED, 0
        end
    end
    local first = 0
    if before and last then
        -- Asked again: the counter still ends with the block of this grant.
        first = last + 1 - tokens
    end
    if first < 1 then
        first = now < 1 and 1 or now
        if last and last >= first then
            first = last + 1
        end
        -- In this order no step leaves the numbers that are exact.
        if first - 1 > TOKEN_MAX - tokens then
            return EXHAUSTED, 0
        end
        local block_last = first - 1 + tokens
        -- The counter first: a number that is skipped harms nobody. It also comes before the
        -- first deletion, after which the server would no longer tell that it is out of memory.
        reply = run('SET', counter, format('%.0f', block_last), 'PX', RETENTION_MS)
        if reply.err then
            return failed('SET', reply)
        end
    end
    if not before then
        -- Deletes nothing. It proves that what is written next can be taken back and released.
        reply = run('HDEL', record, lease)
        if type(reply) == 'table' then
            return failed('HDEL', reply)
        end
    end
    command, reply = write(record, lease, count, ttl, before, left)
    if command then
        return failed(command, reply)
    end
    return GRANTED, first
end

local function renew(record, lease, ttl)
    local held, left, command, reply = look(record, lease)
    if command then
        return failed(command, reply)
    elseif not held then
        return LOST, 0
    elseif left < tonumber(ttl) then
        reply = run('PEXPIRE', record, ttl)
        if type(reply) == 'table' then
            return failed('PEXPIRE', reply)
        end
    end
    return RENEWED, 0
end

local function release(record, lease, count, ttl)
    if count == '0' then
        -- The record goes with its only field.
        local deleted = run('HDEL', record, lease)
        if type(deleted) == 'table' then
            return failed('HDEL', deleted)
        end
        return deleted == 1 and RELEASED or LOST, 0
    end
    local before, left, command, reply = look(record, lease)
    if command then
        return failed(command, reply)
    elseif not before then
        return LOST, 0
    end
    command, reply = write(record, lease, count, ttl, before, left)
    if command then
        return failed(command, reply)
    end
    return RELEASED, tonumber(count)
end

local function revoke(record)
    local fields = run('HGETALL', record)
    if fields.err then
        return failed('HGETALL', fields)
    end
    local reply = run('DEL', record)
    if type(reply) == 'table' then
        return failed('DEL', reply)
    end
    return REVOKED, fields[1] or false
end

local answer, place = {now}, 1
for i = 0, #KEYS / 2 - 1 do
    local record, counter, op = KEYS[2 * i + 1], KEYS[2 * i + 2], 5 * i
    local verb, lease, count, ttl = ARGV[op + 1], ARGV[op + 2], ARGV[op + 3], ARGV[op + 4]
    local code, value
    if verb == 'acquire' then
        code, value = acquire(record, counter, lease, count, ttl, tonumber(ARGV[op + 5]))
    elseif verb == 'renew' then
        code, value = renew(record, lease, ttl)
    elseif verb == 'release' then
        code, value = release(record, lease, count, ttl)
    elseif verb == 'revoke' then
        code, value = revoke(record)
    else
        code, value = FAILED, {verb, 'ERR this script does not know the verb'}
    end
    answer[place + 1], answer[place + 2] = code, value
    place = place + 2
end
return answer
