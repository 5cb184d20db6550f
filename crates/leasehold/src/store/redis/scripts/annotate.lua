-- Stores an annotation: a text that the holder of a lock keeps beside its record. Applies the rule of
-- crates/leasehold-core/src/annotation.rs; the record is described in mutex.lua.
--
-- KEYS: the record; and the annotation, the key of the record and :value, :completion or :completion:<key>. It is a
--       string, "<lease> <first token of the lease> <text>", which expires by itself.
-- ARGV: the lease, the annotation, and for how long it is kept in ms.
--
-- Returns 0 if it was stored, 1 if no lease holds the lock, 2 if another lease does; or {command, error, key} if the
-- server refused a command, or the key has a value of another kind. Then nothing was changed.
--
-- One of many masters does not have to be admitted for this. A master that has forgotten its grants has no record, so
-- it refuses; and an annotation gives no lease a lock.

local run, record, annotation, lease = redis.pcall, KEYS[1], KEYS[2], ARGV[1]

local held = run('GET', record)
if type(held) == 'table' then
    local last = run('LINDEX', record, -1)
    local latch = type(last) == 'string' and string.match(last, '^latch %d+ %d+$')
    return {'GET', latch and 'WRONGTYPE this list is a latch' or held.err, record}
elseif held and string.byte(held, 33) ~= string.byte(':') then
    return {'GET', 'WRONGTYPE this string is no record', record}
elseif held ~= lease and (not held or string.find(held, lease .. ' ', 1, true) ~= 1) then
    return held and 2 or 1
end

local stored = run('GET', annotation)
if type(stored) == 'table' then
    return {'GET', stored.err, annotation}
elseif stored and not string.find(stored, '^%x+:%d+ %d+ ') then
    return {'GET', 'WRONGTYPE this string is no annotation', annotation}
end

local reply = run('SET', annotation, ARGV[2], 'PX', ARGV[3])
if reply.err then
    return {'SET', reply.err, annotation}
end
return 0
