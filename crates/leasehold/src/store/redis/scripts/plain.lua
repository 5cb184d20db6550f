-- Mutexes: applies a batch of operations to the records of names in one atomic call, each by the rule of
-- crates/leasehold-core/src/record/mod.rs. Semaphores and read-write locks have a script of their own, shares.lua.
--
-- The script consists of this text, rule.lua, which it shares with shares.lua, and mutex.lua. A name behind a $ is a constant
-- of wire/script.rs.
--
-- The keys of a name in a tenant of a namespace:
--
--   <namespace>:{<tenant>:<name>}         the record. Of a mutex a string, the lease that holds it,
--                                         <client id>:<number>, behind a space the hold count
--                                         in decimal, and behind another one the time in microseconds at
--                                         which its run was asked for; without a run and with one hold the
--                                         lease alone; expires with the lease. A hold count
--                                         of 0 is a minimum hold: the lease has ended, and no request of it
--                                         changes the record. Of another kind a hash, see shares.lua
--   <namespace>:{<tenant>:<name>}:token   the counter: the last token issued, in decimal,
--                                         which expires a day after the last grant
--   <namespace>:{<tenant>:<name>}:queue   the queue: a list with two elements for each waiting
--                                         lease, "<lease> <ttl in ms> <tokens>" and "<lease>", by
--                                         which it is found; expires two ttls and a second after
--                                         the last request. Behind the tokens of a lease that waits in
--                                         shares.lua is what it waits for. Then, if it waits for a run:
--                                         " <time at which it was asked for> <condition>"
--   <namespace>:{<tenant>:<name>}:value, :completion and :completion:<key>
--                                         the notes: "<lease> <token> <number> <text>"; each expires by itself
--   <namespace>:{<tenant>:<name>}:revoked the lease that was revoked last, for observers, who could not tell
--                                         its end from a release; expires after a minute
--
-- Only these scripts write them. A call declares the first three; it does not declare the notes and :revoked, which are in
-- the same slot. Braces keep them in one slot of a cluster; if the namespace has buckets, the name's
-- bucket is the hash tag: <namespace>:{<bucket>}:{<tenant>:<name>}. A key with another value, such as a
-- latch (latch.lua, a hash) or a record of an earlier layout, makes the operation fail and is left unchanged.
--
-- A grant to a waiter is published on its client's channel, <namespace>:client:<client id>:
-- "<number of the lease> <first token> <ttl in ms> <the server's time in microseconds> <record>". The next live waiter receives the same message with 0 for the token, as no other client
-- would notice that the grant is not accepted; so does the first live waiter behind a minimum hold. A revoked holder
-- receives it with 0 for token and ttl; behind the record, " <note>" says that the run is complete that a waiter asked for,
-- and " <time at which it was asked for>[ <last completion>]" is the run of a grant.
--
-- A client is alive if a connection is subscribed to exactly its channel: `PUBLISH` also counts subscriptions to
-- patterns, so `PUBSUB NUMSUB` is used, for several waiters at once. In a cluster the channel ends with :<node id>, because
-- messages go to all nodes. A message without a receiver is also published on the channel without the id, for a client that
-- has not noticed a failover.
--
-- One of many masters also has its admission record, a hash with the run for which it is admitted, its floor
-- and the largest token that it knows: <namespace>:master.
--
-- KEYS: for each operation its record, its counter and its queue; for a single operation the record is
--       enough. For one of many masters also its admission record, last. The reply of a master that is
--       not admitted is {'HMGET', 'NOTADMITTED'}, unless each operation is a release or writes a note.
-- ARGV: for each operation three values, verb, lease and ttl in ms; for a release the verb and the lease.
--       The verb may be followed by numbers, each behind a space:
--
--         acquire, acquire <tokens> <hold count>   without numbers: one token and one hold
--         acquire <tokens> <hold count> <proposal>
--         acquire <tokens> <hold count> unless <time> <condition>
--                                                  the same for a run that was asked for that many microseconds ago
--         propose                                  one token and one hold; a fourth value is the proposal
--         queue and the same numbers               the same; waits in the queue if it is refused
--         renew, renew <hold count>                sets the hold count, if there is one
--         release
--         release_after                            a release; the ttl is the rest of the minimum hold
--         set_token <first token> <tokens>         no ttl ('')
--         note                                     the ttl is that of the note; two more values: its key behind that
--                                                  of the record, such as :value, and its value
--         complete                                 a release that writes a note first; the ttl is that of the note;
--                                                  three more: the same two, and the rest of the minimum hold or ''
--         revoke                                   no ttl; without a lease: whichever holds the lock
--         serve                                    for a queue with waiters left to pass over; no lease and no ttl
--
--       Then, in a cluster, the id of this node.
--
--       A condition is ":completion:<key>", met by a note with that key, or ":completion <period>[ <anchor>]" in
--       microseconds, met by job::due in crates/leasehold-core/src/job.rs.
--
-- An operation is plain if it acquires a free lock without a queue, with one hold and the proposal as its one token,
-- or without a proposal the time; or releases the only hold of a lock without a queue. If all operations are plain, the
-- call returns the server's time in microseconds as text; or nil if all are releases, for which no time is read.
--
-- Otherwise it returns a flat list: the server's time in microseconds, then for each operation an outcome and a value:
--
--   lost        1 if another holds the lock, else 0
--   granted     the first of the reserved tokens; for a run {that token, the time at which it was asked for, the last
--               completion or nil}
--   refused     the time left of the holder's lease in ms, -1 without an expiry; or, if it waits, {that time, the number of
--               waiters before it}
--   renewed     0
--   released    0
--   revoked     the revoked lease, or nil
--   exhausted   0: the counter has reached its maximum, or is not one of ours
--   failed      {command, error, key}: the server refused the command, and nothing was changed; or {'EVAL', error, record}:
--               a value is damaged
--   stored      0
--   outdated    0: a larger token was issued before, or the lease has written a later note
--   complete    the note
--   mismatch    'latch': the name is used as one
--   elsewhere   0: the record is of the other script, which decides this operation, and all later ones on it
--
-- Then, for each operation that left waiters to pass over, its number from 1: the caller continues it in
-- another call, so that the server can serve others in between. Until then only the head can acquire the lock.
--
-- If the server refuses even TIME, the whole reply is {command, error}.
--
-- An error in one operation does not affect the others. Needs the commands GET, SET, DEL, TIME, PEXPIRE, PTTL and LINDEX;
-- for plain operations EXISTS; for the queue also LPOS, RPUSH, LREM, LTRIM, PUBLISH and PUBSUB NUMSUB (without the last,
-- PUBLISH counts); for records of other kinds HGET; for one of many masters also HMGET, HSET and
-- INFO. A user without one of the first four is granted nothing, so it holds no lock that it cannot release. The next three
-- are not tried before a grant: their refusal shows at a renewal, or where a lease waits.

-- Plain operations come first, before the functions of the rule are created: each command, value and table counts.
-- `for_rule` has the records with operations that are not plain, and for each the position of its first one in KEYS; that
-- one and all later ones are left to the rule. At the position it has the value of the record.
-- `can_delete`: a DEL in this call has shown that what is granted can be released.

local run, keys, argv = redis.pcall, KEYS, ARGV
local size, at, stamp, can_delete, for_rule = #keys, 1, nil, false, nil
-- A call with one key is about a slot that is being migrated, where only the record may be read: the rule decides.
local try_plain = size ~= 1

-- A master that is not admitted may have forgotten its grants. It applies only calls of releases and of notes, which give
-- no lease a lock. An admitted one issues only tokens above its floor. See crates/leasehold-core/src/quorum/master.rs, and
-- master.lua for the definition of a run.
local admission, floor, high = size > 1 and size % 3 == 1 and keys[size], nil, nil
size = size > 1 and size - size % 3 or size
local must_be_admitted = false
if admission then
    for _ = 1, size, 3 do
        local verb = argv[at]
        if verb ~= 'release' and verb ~= 'note' then
            must_be_admitted = true
            break
        end
        at = at + (verb == 'release' and 2 or 5)
    end
    at = 1
end
if must_be_admitted then
    local kept, info = run('HMGET', admission, 'run', 'floor', 'high'), run('INFO', 'replication')
    if kept.err then
        return {'HMGET', kept.err}
    elseif type(info) == 'table' then
        return {'INFO', info.err}
    elseif not info:find('role:master', 1, true) then
        return {'INFO', 'READONLY the server is a replica'}
    elseif not kept[1] or kept[1] ~= info:match('master_replid:(%x+)') then
        return {'HMGET', 'NOTADMITTED'}
    end
    floor, high = tonumber(kept[2] or 0), tonumber(kept[3] or 0)
end

for i = 1, size, 3 do
    local record, verb, lease = keys[i], argv[at], argv[at + 1]
    if not (for_rule and for_rule[record]) then
        local held, done
        if not try_plain then
            -- Left to the rule.
        elseif verb == 'release' then
            held = run('GET', record)
            -- Behind the lease of a run is its hold count, and when it was asked for.
            local holds = held == lease or type(held) == 'string' and held:sub(1, #lease + 3) == lease .. ' 1 '
            done = holds and (admission or run('EXISTS', keys[i + 2]) == 0) and run('DEL', record) == 1
        elseif verb == 'queue' or verb == 'acquire' or verb == 'propose' then
            held = run('GET', record)
            if not held and (admission or run('EXISTS', keys[i + 2]) == 0) then
                if not stamp then
                    local time = run('TIME')
                    stamp = time[1] and time[1] .. (#time[2] == 6 and time[2] or string.format('%06d', time[2])) or ''
                end
                -- Times and tokens of 16 digits have the same order as text.
                local counter, token = keys[i + 1], verb == 'propose' and argv[at + 3] or stamp
                local last = #stamp ~= 16 or #token ~= 16 or token < stamp
                    or admission and (tonumber(token) <= floor or tonumber(token) > high)
                    or run('SET', counter, token, 'PX', '$RETENTION_MS', 'GET')
                if not last or type(last) == 'string' and #last == 16 and last < token then
                    -- Deletes nothing. It proves that the lock can be released.
                    can_delete = can_delete or run('DEL', record) == 0
                    -- Without a value before, its reply is cheaper than a status.
                    done = can_delete and run('SET', record, lease, 'PX', argv[at + 2], 'GET') == false
                elseif type(last) == 'string' then
                    -- Ahead of the clock, or not one of ours.
                    run('SET', counter, last, 'PX', '$RETENTION_MS')
                end
            end
        end
        if not done then
            if held == nil then
                held = run('GET', record)
            end
            -- A table that is made with both is cheaper than one that grows twice.
            if for_rule then
                for_rule[record], for_rule[i] = i, held
            else
                for_rule = {[record] = i, [i] = held}
            end
        end
    end
    at = at + (verb == 'release' and 2 or verb == 'propose' and 4 or verb == 'note' and 5 or verb == 'complete' and 6 or 3)
end
if size > 0 and not for_rule then
    return stamp
end
for_rule = for_rule or {}

