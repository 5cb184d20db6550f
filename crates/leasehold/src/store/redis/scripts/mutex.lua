-- Mutexes and semaphores: applies a batch of operations to the records of names in one atomic call, each by the
-- rule of crates/leasehold-core/src/record/mod.rs.
--
-- The keys of a name in a tenant of a namespace:
--
--   <namespace>:{<tenant>:<name>}         the record. Of a mutex a string, the lease that holds it,
--                                         <client id>:<number>, behind a space the hold count
--                                         in decimal, and behind another one the time in microseconds at
--                                         which its run was asked for; without a run and with one hold the
--                                         lease alone; expires with the lease. A hold count
--                                         of 0 is a minimum hold: the lease has ended, and no request of it
--                                         changes the record. Of a semaphore a hash, see below
--   <namespace>:{<tenant>:<name>}:token   the counter: the last token issued, in decimal,
--                                         which expires a day after the last grant
--   <namespace>:{<tenant>:<name>}:queue   the queue: a list with two elements for each waiting
--                                         lease, "<lease> <ttl in ms> <tokens>" and "<lease>", by
--                                         which it is found; expires two ttls and a second after
--                                         the last request. Behind the tokens of a lease that waits for
--                                         permits of a semaphore: "x<permits>". Then, if it waits for a
--                                         run: " <time at which it was asked for> <condition>"
--   <namespace>:{<tenant>:<name>}:value, :completion and :completion:<key>
--                                         the notes: "<lease> <token> <number> <text>"; each expires by itself
--   <namespace>:{<tenant>:<name>}:revoked the lease that was revoked last, for observers, who could not tell
--                                         its end from a release; expires after a minute
--
-- Only this script writes them. A call declares the first three; it does not declare the notes and :revoked, which are in
-- the same slot. Braces keep them in one slot of a cluster; if the namespace has buckets, the name's
-- bucket is the hash tag: <namespace>:{<bucket>}:{<tenant>:<name>}. A key with another value, such as a
-- latch (latch.lua, a hash) or a record of an earlier layout, makes the operation fail and is left unchanged.
--
-- The fields of the record of a semaphore:
--
--   .          "permits <how many there are>"
--   used       "<how many its holders have>[ <no holder ends before>]"; without it they are counted
--   <lease>    a holder: "<permits> <hold count> <first token> <end>[ <when its run was asked for>]"
--
-- Its times are in microseconds, and a hold count of 0 is a minimum hold. It does not expire before its last holder and
-- its queue do.
--
-- A grant to a waiter is published on its client's channel, <namespace>:client:<client id>:
-- "<number of the lease> <first token> <ttl in ms> <the server's time in microseconds> <record>". Behind the token of a
-- grant of permits is "x<permits>". The next live waiter receives the same message with 0 for the token, as no other client
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
--         acquire <tokens> <hold count> of <weight> <permits>
--                                                  the first number of the permits of a semaphore, which has the
--                                                  second number of them; the same may follow
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
--   renewed     1 if the lease has permits of a semaphore, else 0
--   released    0
--   revoked     the revoked lease, or nil; of a semaphore a list
--   exhausted   0: the counter has reached its maximum, or is not one of ours
--   failed      {command, error, key}: the server refused the command, and nothing was changed; or {'EVAL', error, record}:
--               a value is damaged
--   stored      0
--   outdated    0: a larger token was issued before, or the lease has written a later note
--   complete    the note
--   mismatch    'latch', 'lock' or 'semaphore': the name is used as one; 'weight': more permits than there are; or their
--               number, which is not the requested one
--
-- Then, for each operation that left waiters to pass over, its number from 1: the caller continues it in
-- another call, so that the server can serve others in between. Until then only the head can acquire the lock.
--
-- If the server refuses even TIME, the whole reply is {command, error}.
--
-- An error in one operation does not affect the others. Needs the commands GET, SET, DEL, TIME, PEXPIRE, PTTL and LINDEX;
-- for plain operations EXISTS; for the queue also LPOS, RPUSH, LREM, LTRIM, PUBLISH and PUBSUB NUMSUB (without the last,
-- PUBLISH counts); for semaphores HGET, HSET, HDEL, HGETALL, LLEN and EXISTS; for one of many masters also HMGET, HSET and
-- INFO. A user without one of the first four is granted nothing, so it holds no lock that it cannot release. The next three
-- are not tried before a grant: their refusal shows at a renewal, or where a lease waits.

-- A day, and the largest whole number that a Lua number and JSON hold exactly.
local RETENTION_MS, TOKEN_MAX = '86400000', 9007199254740991

-- How far `high` is set ahead of the largest token: see HIGH_STEP in crates/leasehold-core/src/quorum/master.rs.
local HIGH_STEP = 1000000

-- Plain operations come first, before the functions of the rule are created: each command, value and table counts.
-- `for_rule` has the records with operations that are not plain, and for each the position of its first one in KEYS; that
-- one and all later ones are left to the rule. At the position it has the value of the record.
-- `can_delete`: a DEL in this call has shown that what is granted can be released. `has_semaphores`: the rule may need the
-- functions of semaphores.

local run, keys, argv = redis.pcall, KEYS, ARGV
local size, at, stamp, can_delete, has_semaphores, for_rule = #keys, 1, nil, false, false, nil
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
    elseif not string.find(info, 'role:master', 1, true) then
        return {'INFO', 'READONLY the server is a replica'}
    elseif not kept[1] or kept[1] ~= string.match(info, 'master_replid:(%x+)') then
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
            local holds = held == lease or type(held) == 'string' and string.sub(held, 1, #lease + 3) == lease .. ' 1 '
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
                    or run('SET', counter, token, 'PX', RETENTION_MS, 'GET')
                if not last or type(last) == 'string' and #last == 16 and last < token then
                    -- Deletes nothing. It proves that the lock can be released.
                    can_delete = can_delete or run('DEL', record) == 0
                    -- Without a value before, its reply is cheaper than a status.
                    done = can_delete and run('SET', record, lease, 'PX', argv[at + 2], 'GET') == false
                elseif type(last) == 'string' then
                    -- Ahead of the clock, or not one of ours.
                    run('SET', counter, last, 'PX', RETENTION_MS)
                end
            end
        end
        if not done then
            if held == nil then
                held = run('GET', record)
            end
            has_semaphores = has_semaphores or type(held) == 'table' or string.find(verb, ' of ', 1, true)
            for_rule = for_rule or {}
            for_rule[record], for_rule[i] = i, held
        end
    elseif not has_semaphores then
        has_semaphores = string.find(verb, ' of ', 1, true)
    end
    at = at + (verb == 'release' and 2 or verb == 'propose' and 4 or verb == 'note' and 5 or verb == 'complete' and 6 or 3)
end
if size > 0 and not for_rule then
    return stamp
end
for_rule = for_rule or {}

-- Behind the client id of a lease, and before a hold count.
local COLON, SPACE = 58, 32

-- How long a waiter keeps a grant that it has not accepted yet.
local ACCEPTANCE_MS = 3000

-- How long the lease that was revoked last is kept for observers.
local REVOCATION_MS = 60000

-- How long before the time of a slot a start belongs to it at most, if the anchor was chosen, in microseconds.
local LEAD_MAX = 11700000000

-- About how many waiters one call passes over at most, how many channels one `PUBSUB NUMSUB` has, and as how
-- many waiters one counts to which a message was sent, and one that was granted permits of a semaphore.
local PASS_MAX, PASS_CHUNK, PASS_MESSAGE, PASS_GRANT = 1024, 32, 4, 16

local byte, find, sub, match, format = string.byte, string.find, string.sub, string.match, string.format
local type, tonumber = type, tonumber

local node = argv[at] and ':' .. argv[at] or ''

local now = tonumber(stamp)
if not now then
    local time = run('TIME')
    if time.err then
        return {'TIME', time.err}
    end
    now = time[1] * 1000000 + time[2]
end

-- The number of waiters passed over, whether the operation leaves more of them, and whether it has written a completion.
local passed, unfinished, written = 0, false, false

-- Runs a command. Its refusal ends the operation.
local function must(command, key, ...)
    local reply = run(command, key, ...)
    if type(reply) == 'table' and reply.err then
        error({'failed', {command, reply.err, key}})
    end
    return reply
end

-- The prefix of the channels of clients.
local function prefix(record)
    return match(record, '^[^:]*') .. ':client:'
end

-- Notifies the client of a lease, and returns whether the client is alive. `subscribers` is the number of its
-- connections; nil: unknown, so the receivers of the message are counted. `about` is what the message has behind the
-- record, `permits` how many are granted.
local function notify(record, lease, first, ttl, subscribers, about, permits)
    local client, number = match(lease, '^(%x+):(%d+)')
    if not client then
        return false
    end
    local channel = prefix(record) .. client
    local message = format('%s %.0f%s %.0f %.0f %s', number, first, permits and 'x' .. permits or '', ttl, now, record)
    message = about and message .. ' ' .. about or message
    if subscribers ~= 0 then
        local received = run('PUBLISH', channel .. node, message)
        if type(received) == 'number' and received > 0 then
            return true
        end
    end
    if node ~= '' then
        -- The client may be subscribed at another node, such as the former master of this shard. There the
        -- message is not a grant: the client requests the lock again and finds the node of the record.
        run('PUBLISH', channel, message)
    end
    return false
end

-- Keeps for observers that a lease was revoked, and notifies its client. A failure changes nothing else.
local function notify_revoked(record, lease)
    run('SET', record .. ':revoked', lease, 'PX', REVOCATION_MS)
    local subscribers = run('PUBSUB', 'NUMSUB', prefix(record) .. match(lease, '^%x+') .. node)
    notify(record, lease, 0, 0, subscribers[2])
end

-- Reserves the next block of tokens, from the `proposal` or the time, whichever is later, or the `chosen` one, and
-- returns its first token. If the block of this grant is `known` to be the last of the counter, returns that one again,
-- unless the counter was lost. Returns nil and an outcome if the counter has no larger token, or the chosen one is not
-- larger.
local function reserve(counter, tokens, known, chosen, proposal)
    tokens = tonumber(tokens)
    local last
    if tokens == 1 and not (known or chosen or proposal or floor) then
        -- Usually the time is later than the last token. This command, new in 6.2, reads and writes the counter.
        last = run('SET', counter, format('%.0f', now), 'PX', RETENTION_MS, 'GET')
        if not last or type(last) == 'string' and find(last, '^%d+$') and tonumber(last) < now then
            return now
        elseif type(last) == 'string' then
            run('SET', counter, last, 'PX', RETENTION_MS)
        end
    end
    last = must('GET', counter)
    if last then
        last = find(last, '^%d+$') and tonumber(last)
        if not last or last > TOKEN_MAX then
            return nil, 'exhausted'
        end
    end
    if known and last and last >= tokens then
        return last + 1 - tokens
    end
    if floor and floor > (last or 0) then
        last = floor
    end
    local first = chosen or math.max(proposal or 1, now)
    if last then
        if chosen and last == chosen - 1 + tokens then
            return chosen
        elseif chosen and last >= chosen then
            return nil, 'outdated'
        elseif last >= first then
            first = last + 1
        end
    end
    -- In this order, every intermediate result is an exact number.
    if first - 1 > TOKEN_MAX - tokens then
        return nil, 'exhausted'
    end
    last = first - 1 + tokens
    if high and last > high then
        local ahead = math.min(last + HIGH_STEP, TOKEN_MAX)
        must('HSET', admission, 'high', ahead)
        high = ahead
    end
    -- The server writes a number with all its digits.
    must('SET', counter, last, 'PX', RETENTION_MS)
    return first
end

-- Writes the record of a mutex. Only a release shortens a lease: a longer time `left` is kept. It is written in either
-- case, so that a replica that lags cannot acknowledge it. `since` is when its run was asked for.
local function write(record, lease, count, ttl, left, since)
    if left == -2 and not can_delete then
        -- Deletes nothing. It proves that the lock can be released.
        must('DEL', record)
        can_delete = true
    end
    local value = count == '1' and not since and lease or lease .. ' ' .. count .. (since and ' ' .. since or '')
    must('SET', record, value, 'PX', left > tonumber(ttl) and left or ttl)
end

-- The note under a key: its lease, its number, its text and the whole value; false if there is none.
local function read_note(key)
    local value = must('GET', key)
    if not value then
        return false
    end
    local lease, number, text = match(value, '^(%x+:%d+) %d+ (%d+) (.*)$')
    if not lease then
        error({'failed', {'GET', 'WRONGTYPE this string is no annotation', key}})
    end
    return {lease = lease, number = tonumber(number), text = text, value = value}
end

-- Whether a lease has written a note with a larger number than that in the `value` of a note.
local function is_outdated(note, lease, value)
    return note and note.lease == lease and note.number > tonumber(match(value, '^%S+ %d+ (%d+) '))
end

-- Whether a release that leaves a note, its `value`, was applied before.
local function was_applied(record, slot, lease, value)
    local note = read_note(record .. slot)
    return note and (note.value == value or is_outdated(note, lease, value))
end

-- Writes a note, unless the lease has written one with a larger number. Returns an outcome.
local function write_note(record, slot, lease, value, ttl)
    local key = record .. slot
    if is_outdated(read_note(key), lease, value) then
        return 'outdated'
    end
    must('SET', key, value, 'PX', ttl)
    written = slot ~= ':value'
    return 'stored'
end

-- Whether a completion is that of a run that was asked for at the time `asked`. A text that cannot be read counts: its
-- reader reports the error. Every number is exact below 2^53.
local function is_met(text, period, anchor, asked)
    local fields = {}
    for name, value in string.gmatch(text, ' ([^ =]+)=([^ ]*)') do
        local seconds, micros = match(value, '^(%d+)%.(%d%d%d%d%d%d)$')
        fields[name] = seconds and seconds * 1000000 + micros
    end
    local requested, started, finished = fields.requested, fields.started, fields.finished
    if sub(text, 1, 2) ~= '1 ' or not (requested and started and finished) then
        return true
    elseif asked > finished + 2 * period or started > now + 2 * period then
        return false
    end
    local chosen = anchor or fields['chosen-anchor']
    anchor = chosen or fields.anchor or asked
    -- When the slot of a time begins, or with `lead` the starts that belong to it.
    local function slot(time, lead)
        local offset = time - anchor + lead
        local rest = math.fmod(offset, period)
        return offset - (rest < 0 and rest + period or rest)
    end
    local lead = math.floor(period / 2)
    lead = chosen and math.min(lead, LEAD_MAX) or lead
    return math.max(slot(requested, lead), slot(started, 0)) >= slot(asked, lead)
end

-- Whether the run of a condition is complete that was asked for at the time `asked`, and the note in its slot, or false.
local function decide(record, condition, asked)
    local slot, period, anchor = match(condition, '^(:completion) (%d+) ?(%d*)$')
    local note = read_note(record .. (slot or condition))
    local met = note and (not slot or is_met(note.text, tonumber(period), tonumber(anchor), tonumber(asked)))
    return met, note and note.value
end

-- Whether the limit of this call is reached and waiters are left.
local function is_unfinished(queue)
    return passed >= PASS_MAX and type(run('LINDEX', queue, 0)) == 'string'
end

-- Removes dead waiters from the head of a queue, up to the first that is alive or is the `requester`. Returns that
-- one with the number of its subscribers, or nil.
local function pass_over(record, queue, requester)
    local prefix, size = prefix(record), 1
    repeat
        local heads, channels, count = {}, {}, 0
        repeat
            local words = must('LINDEX', queue, 2 * count)
            if not words then
                break
            end
            local lease, client, ttl, tokens, weight, run_of = match(words, '^((%x+):%d+) (%d+) (%d+)x?(%d*) ?(.*)$')
            local is_waiter = lease and (run_of == '' or find(run_of, '^%d+ :'))
            if not is_waiter and count > 0 then
                break
            elseif not is_waiter then
                error({'failed', {'LINDEX', 'WRONGTYPE this list is no queue', queue}})
            elseif lease == requester and count == 0 then
                return {lease = lease}
            end
            count = count + 1
            heads[count] = {
                lease = lease, ttl = ttl, tokens = tokens, weight = tonumber(weight), run = run_of ~= '' and run_of,
            }
            channels[count] = prefix .. client .. node
        until count == size or lease == requester
        if count == 0 then
            return nil
        end
        -- Without the permission for NUMSUB there is no number, and waiters count as alive.
        local subscribers, dead = run('PUBSUB', 'NUMSUB', unpack(channels)), 0
        while dead < count and subscribers[2 * dead + 2] == 0 and heads[dead + 1].lease ~= requester do
            dead = dead + 1
        end
        if dead > 0 then
            must('LTRIM', queue, 2 * dead, -1)
            passed = passed + dead
            if node ~= '' then
                for i = 1, dead do
                    notify(record, heads[i].lease, 0, heads[i].ttl, 0)
                end
                passed = passed + dead * (PASS_MESSAGE - 1)
            end
        end
        local head = heads[dead + 1]
        if head then
            head.subscribers = subscribers[2 * dead + 2]
            return head
        end
        size = math.min(2 * size, PASS_CHUNK)
    until passed >= PASS_MAX
    unfinished = is_unfinished(queue)
end

-- Drops the waiter at the head of the queue if its run is complete, and notifies it. `of_permits`: whether the waiters
-- are those of a semaphore. One of another kind, whose record was deleted, repeats its request, and one whose note cannot be
-- read as well. Returns whether it was dropped, and otherwise the run that it waits for as a grant has it.
local function drop_needless(record, queue, head, of_permits)
    local is_decided, met, note
    if of_permits == nil or of_permits == (head.weight ~= nil) then
        if not head.run then
            return false
        end
        local asked, condition = match(head.run, '^(%d+) (.*)$')
        is_decided, met, note = pcall(decide, record, condition, asked)
        if is_decided and not met then
            return false, note and asked .. ' ' .. note or asked
        end
    end
    must('LTRIM', queue, 2, -1)
    notify(record, head.lease, 0, is_decided and 0 or 1, head.subscribers, is_decided and note)
    passed = passed + PASS_MESSAGE
    return true
end

-- Notifies the first live waiter behind a grant or a minimum hold for `ttl`, so that it watches that time. Those before
-- it whose run this operation has completed are dropped; without `ttl`, that is all. Its callers ignore a failure.
local function notify_next(record, queue, ttl)
    repeat
        local head = pass_over(record, queue)
        if not head then
            return
        elseif not (written and drop_needless(record, queue, head)) then
            if not ttl or notify(record, head.lease, 0, ttl, head.subscribers) then
                return
            end
            must('LTRIM', queue, 2, -1)
            passed = passed + PASS_MESSAGE
        end
    until passed >= PASS_MAX
    unfinished = is_unfinished(queue)
end

-- Grants a free record to the first live waiter, unless that is the requester, whose reply is its grant. Returns
-- whether the queue has a head afterwards, and the time left of the record.
--
-- The counter is written first and the queue last, so a failure removes only dead waiters from the queue.
local function pass_on(record, counter, queue, requester)
    repeat
        local head = pass_over(record, queue, requester)
        if not head or head.lease == requester then
            return head ~= nil or unfinished, -2
        end
        local dropped, about = drop_needless(record, queue, head, false)
        if not dropped then
            local first, outcome = reserve(counter, head.tokens)
            if not first then
                -- The lock is granted to nobody: a request for fewer tokens does not overtake the waiter.
                error({outcome, 0})
            end
            local ttl = math.min(tonumber(head.ttl), ACCEPTANCE_MS)
            write(record, head.lease, '1', ttl, -2, about and match(about, '^%d+'))
            local trimmed = run('LTRIM', queue, 2, -1)
            if trimmed.err then
                run('DEL', record)
                error({'failed', {'LTRIM', trimmed.err, queue}})
            end
            if notify(record, head.lease, first, ttl, head.subscribers, about) then
                pcall(notify_next, record, queue, ttl)
                return true, ttl
            end
            -- Its connection is closed, or it cannot be notified. The next waiter is tried.
            run('DEL', record)
            passed = passed + PASS_MESSAGE
        end
    until passed >= PASS_MAX
    unfinished = is_unfinished(queue)
    return unfinished, -2
end

-- Appends a lease to the queue, unless it is there, and returns the number of waiters before it. `about` is the run that it
-- waits for.
local function join(queue, lease, ttl, tokens, about)
    local at = must('LPOS', queue, lease)
    local entry = lease .. ' ' .. ttl .. ' ' .. tokens .. (about and ' ' .. about or '')
    local new = not at
    if new then
        at = must('RPUSH', queue, entry, lease) - 1
    end
    local kept, retention = run('PTTL', queue), 2 * ttl + 1000
    if type(kept) == 'table' or kept < retention then
        local reply = run('PEXPIRE', queue, retention)
        if type(reply) == 'table' then
            if new then
                run('LREM', queue, -1, lease)
                run('LREM', queue, -1, entry)
            end
            error({'failed', {'PEXPIRE', reply.err, queue}})
        end
    end
    return (at - 1) / 2
end

-- Removes a lease from the queue, at any position.
local function leave(queue, lease)
    local at = must('LPOS', queue, lease)
    if at then
        local entry = run('LINDEX', queue, at - 1)
        must('LREM', queue, 1, lease)
        run('LREM', queue, 1, entry)
    end
end

-- When a lease in the queue has asked for its run. nil or false: it does not wait.
local function asked_at(queue, lease)
    -- A server without LPOS has no queue.
    local at = type(run('LINDEX', queue, 0)) == 'string' and must('LPOS', queue, lease)
    return at and match(run('LINDEX', queue, at - 1), '^%S+ %d+ [%dx]+ (%d+) ')
end

-- The functions of semaphores are created only for a call that needs them.
local apply_to_semaphore
if has_semaphores then
    -- Applies an operation to a semaphore. `held` is what `GET` has replied for its record. Returns an outcome and a value;
    -- nothing if a mutex takes the name, which is free.
    function apply_to_semaphore(op, held)
        local record, queue, lease, verb = op.record, op.queue, op.lease, op.verb
        local acquires = verb == 'acquire' or verb == 'queue' or verb == 'propose'
        local permits, used, earliest, owes_next, exhausted

        local function parse(text)
            local weight, count, first, ends, since = match(text, '^(%d+) (%d+) (%d+) (%d+) ?(%d*)$')
            if not weight then
                error({'failed', {'HGET', 'WRONGTYPE this field is no holder', record}})
            end
            return {weight = tonumber(weight), count = count, first = tonumber(first), ends = tonumber(ends), since = since}
        end

        local function state()
            return format(earliest and '%.0f %.0f' or '%.0f', used, earliest)
        end

        local function save_used()
            if type(run('HSET', record, 'used', state())) == 'table' then
                -- The memory is full.
                run('HDEL', record, 'used')
            end
        end

        -- Drops the holders whose leases have ended, and counts the others.
        local function count_again()
            -- A failure on the way must not look like a semaphore without holders.
            used, earliest = nil, nil
            local sum, first = 0, nil
            local fields = must('HGETALL', record)
            for i = 1, #fields, 2 do
                if find(fields[i], ':', 1, true) then
                    local holder = parse(fields[i + 1])
                    if now >= holder.ends then
                        must('HDEL', record, fields[i])
                    else
                        sum = sum + holder.weight
                        first = math.min(first or holder.ends, holder.ends)
                    end
                end
            end
            used, earliest = sum, first
            if #fields > 0 then
                save_used()
            end
        end

        local function holder_of(id)
            local text = used > 0 and must('HGET', record, id)
            local holder = text and parse(text)
            return holder and now < holder.ends and holder
        end

        -- Keeps the record for so many milliseconds at least. Returns whether there is one.
        local function keep(millis)
            local left = must('PTTL', record)
            must('PEXPIRE', record, math.max(left, millis))
            return left ~= -2
        end

        -- Stores a holder that is counted. The expiry comes first: then its refusal changes nothing, and a full memory
        -- refuses no renewal, because a script that has written may go on.
        local function store(id, holder)
            local millis = math.ceil((holder.ends - now) / 1000) + 1
            earliest = math.min(earliest or holder.ends, holder.ends)
            local row = format('%.0f %s %.0f %.0f', holder.weight, holder.count, holder.first, holder.ends)
            row = holder.since ~= '' and row .. ' ' .. holder.since or row
            local exists = keep(millis)
            must('HSET', record, id, row, '.', 'permits ' .. permits, 'used', state())
            if not exists then
                keep(millis)
            end
        end

        local function dismiss(id, holder)
            must('HDEL', record, id)
            used = used - holder.weight
            earliest = used > 0 and earliest or nil
            save_used()
        end

        -- Stores a new holder, and removes it from the queue by a function. If that fails, it is no holder.
        local function admit(id, holder, remove, ...)
            -- Changes nothing. It proves that the permits can be taken back.
            must('HDEL', record, id)
            used = used + holder.weight
            store(id, holder)
            local removed, failure = pcall(remove, ...)
            if not removed then
                dismiss(id, holder)
                error(failure)
            end
        end

        -- Grants what is free to the first waiters, as far as they fit. Then it notifies the first one behind them.
        local function serve(requester)
            while written or verb == 'serve' or used < permits do
                local head = pass_over(record, queue, requester)
                if not head or head.lease == requester then
                    break
                end
                local dropped, about = drop_needless(record, queue, head, true)
                if not dropped then
                    if used + head.weight > permits then
                        break
                    end
                    local first = reserve(op.counter, head.tokens)
                    if not first then
                        exhausted = true
                        return
                    end
                    local ttl = math.min(tonumber(head.ttl), ACCEPTANCE_MS)
                    local holder = {
                        weight = head.weight, count = '1', first = first, ends = now + ttl * 1000,
                        since = about and match(about, '^%d+') or '',
                    }
                    admit(head.lease, holder, must, 'LTRIM', queue, 2, -1)
                    passed = passed + PASS_GRANT
                    if notify(record, head.lease, first, ttl, head.subscribers, about, head.weight) then
                        owes_next = true
                    else
                        -- Its connection is closed, or it cannot be notified.
                        dismiss(head.lease, holder)
                    end
                end
                if passed >= PASS_MAX then
                    unfinished = is_unfinished(queue)
                    return
                end
            end
            if unfinished then
                return
            elseif owes_next and earliest then
                pcall(notify_next, record, queue, math.ceil((earliest - now) / 1000))
            end
            owes_next = false
        end

        -- Without holders and waiters any kind may take the name.
        local function is_free()
            return used == 0 and must('EXISTS', queue) == 0
        end

        local function refused(position)
            local left = earliest and math.ceil((earliest - now) / 1000) or 0
            return 'refused', position and {left, position} or left
        end

        local function acquire()
            if op.weight and op.weight > op.permits then
                return 'mismatch', 'weight'
            elseif is_free() then
                permits = op.permits
                if not permits then
                    -- A mutex takes the name.
                    return
                end
            elseif permits ~= op.permits then
                return 'mismatch', op.permits and permits or 'semaphore'
            end
            local holder = holder_of(lease)
            if holder and holder.count == '0' then
                return refused()
            elseif not holder and exhausted then
                return 'exhausted', 0
            end
            local at = not holder and must('LPOS', queue, lease)
            local position = at and (at - 1) / 2 or must('LLEN', queue) / 2
            local met, last, asked
            if op.condition then
                -- The first request counts: a holder and a waiter keep its time.
                asked = holder and holder.since or at and asked_at(queue, lease)
                asked = asked and asked ~= '' and asked or format('%.0f', math.max(now - op.ago, 0))
                met, last = decide(record, op.condition, asked)
            end
            local ends, first = now + op.ttl * 1000, nil
            if holder then
                first = holder.first
                holder.count, holder.ends = op.count, math.max(holder.ends, ends)
                store(lease, holder)
            elseif met then
                leave(queue, lease)
                return 'complete', last
            elseif position > 0 or used + op.weight > permits then
                if verb ~= 'queue' then
                    return refused()
                end
                -- First, so that a full memory refuses the request before it waits.
                must('HSET', record, '.', 'permits ' .. permits, 'used', state())
                keep(2 * op.ttl + 1000)
                local tokens = op.tokens .. 'x' .. op.weight
                return refused(join(queue, lease, op.ttl, tokens, asked and asked .. ' ' .. op.condition))
            else
                local outcome
                first, outcome = reserve(op.counter, op.tokens, nil, nil, op.first)
                if not first then
                    return outcome, 0
                end
                holder = {weight = op.weight, count = op.count, first = first, ends = ends, since = asked or ''}
                admit(lease, holder, leave, queue, lease)
            end
            return 'granted', asked and not met and {first, asked, last} or first
        end

        -- The outcome for a lease that does not hold. It does not wait any more.
        local function lost()
            leave(queue, lease)
            serve()
            if verb == 'complete' and was_applied(record, op.note, lease, op.text) then
                return 'released', 0
            end
            return 'lost', used > 0 and 1 or 0
        end

        local function revoke()
            local revoked, ids = {}, {lease}
            if lease == '' then
                ids = {}
                local fields = must('HGETALL', record)
                for i = 1, #fields, 2 do
                    ids[#ids + 1] = fields[i]
                end
                -- Numbers have no leading zeros.
                table.sort(ids, function(a, b)
                    local client, other = sub(a, 1, 33), sub(b, 1, 33)
                    return client < other or client == other and (#a < #b or #a == #b and a < b)
                end)
            end
            for _, id in ipairs(ids) do
                local holder = find(id, ':', 1, true) and holder_of(id)
                if holder then
                    dismiss(id, holder)
                    revoked[#revoked + 1] = id
                    notify_revoked(record, id)
                end
            end
            return 'revoked', revoked
        end

        local function of_holder(holder)
            if verb == 'renew' then
                holder.count = op.count or holder.count
                holder.ends = math.max(holder.ends, now + op.ttl * 1000)
                store(lease, holder)
                return 'renewed', 1
            elseif verb == 'set_token' then
                local first, outcome = reserve(op.counter, op.tokens, false, op.first)
                if not first then
                    return outcome, 0
                end
                holder.first = op.first
                store(lease, holder)
                return 'stored', 0
            end
            if verb == 'note' or verb == 'complete' then
                -- First, so that no release forgets its note.
                local outcome = write_note(record, op.note, lease, op.text, op.ttl)
                if verb == 'note' then
                    return outcome, 0
                end
            end
            if op.rest == '' then
                dismiss(lease, holder)
            else
                holder.count, holder.ends, owes_next = '0', now + op.rest * 1000, true
                store(lease, holder)
            end
            return 'released', 0
        end

        local function apply()
            permits = tonumber(match(must('HGET', record, '.') or '', '^permits (%d+)$') or op.permits)
            local sum, ends = match(must('HGET', record, 'used') or '', '^(%d+) ?(%d*)$')
            used, earliest = tonumber(sum), tonumber(ends)
            if not used or used > 0 and not earliest or earliest and now >= earliest then
                count_again()
            end
            if acquires then
                serve(lease)
                return acquire()
            elseif verb == 'serve' then
                owes_next = true
                return 'lost', 0
            elseif verb == 'revoke' then
                return revoke()
            end
            local holder = holder_of(lease)
            if holder and holder.count ~= '0' then
                return of_holder(holder)
            end
            return lost()
        end

        if type(held) ~= 'table' then
            -- A free name is taken by the semaphore, unless a living lease waits for it as a mutex.
            local waiter = not held and run('LINDEX', queue, 0)
            local is_mutex = type(waiter) == 'string' and not find(waiter, '^%S+ %d+ %d+x')
            if held or is_mutex and pass_on(record, op.counter, queue, lease) then
                return 'mismatch', op.weight > op.permits and 'weight' or 'lock'
            end
        end
        local done, outcome, value = pcall(apply)
        -- A failure from here on does not change the result.
        if used and permits then
            pcall(serve, acquires and lease)
        end
        if used == 0 and run('EXISTS', queue) == 0 then
            run('DEL', record)
        end
        if not done then
            error(outcome)
        end
        return outcome, value
    end
end

-- Applies an operation to a mutex. `held` is its record, false if it is free; `rest` is the rest of a minimum hold, or
-- empty. The others are those parts of the operation that its verb has. Returns an outcome and a value.
local function apply_to_mutex(record, counter, queue, verb, lease, ttl, held, rest, note, text, tokens, count, first,
    ago, condition)
    -- The hold count if the lease holds the mutex, when its run was asked for, and whether it is in its minimum hold.
    local holds, since, is_reserved
    if held and (byte(held, 33) ~= COLON or lease == '' and not find(held, '^%x+:%d')) then
        error({'failed', {'GET', 'WRONGTYPE this string is no record', record}})
    elseif held == lease then
        holds = '1'
    elseif held and byte(held, #lease + 1) == SPACE and find(held, lease, 1, true) == 1 then
        holds, since = match(held, '^(%d+) ?(%d*)$', #lease + 2)
        since = since ~= '' and since or nil
        is_reserved = holds == '0'
        holds = not is_reserved and holds
    end
    if holds and (verb == 'note' or verb == 'complete') then
        -- First, so that no release forgets its note.
        local outcome = write_note(record, note, lease, text, ttl)
        if verb == 'note' then
            if written then
                pcall(notify_next, record, queue)
            end
            return outcome, 0
        end
    end
    -- The time left in ms: -1 without an expiry, -2 if it is free. The result so far.
    local left, outcome, value
    local is_revoked = verb == 'revoke' and (lease == '' or holds or is_reserved)
    if is_revoked or holds and rest == '' and (verb == 'release' or verb == 'complete') then
        must('DEL', record)
        can_delete = true
        left, outcome, value = -2, 'released', 0
        if is_revoked then
            outcome, value = 'revoked', held and match(held, '^[^ ]+')
            if value then
                notify_revoked(record, value)
            end
        end
    else
        left = held and must('PTTL', record) or -2
        if verb == 'revoke' then
            outcome, value = 'revoked', false
        end
    end

    if verb == 'acquire' or verb == 'queue' or verb == 'propose' then
        local head = left == -2 and run('LINDEX', queue, 0)
        if head then
            head, left = pass_on(record, counter, queue, lease)
        end
        local waits = not holds and (head or left ~= -2)
        local met, last, asked
        if condition and not is_reserved then
            -- The first request counts: a holder and a waiter keep its time.
            asked = holds and since or waits and asked_at(queue, lease)
            asked = asked or format('%.0f', math.max(now - ago, 0))
            met, last = decide(record, condition, asked)
            if met and waits then
                leave(queue, lease)
            end
        end
        if not met or holds then
            if not holds and (left ~= -2 or unfinished) then
                left = left == -2 and 0 or left
                if verb ~= 'queue' or is_reserved then
                    return 'refused', left
                end
                return 'refused', {left, join(queue, lease, ttl, tokens, asked and asked .. ' ' .. condition)}
            end
            -- A proposal, if there is one.
            first, outcome = reserve(counter, tokens, holds, nil, first)
            if not first then
                return outcome, 0
            end
            if not holds then
                since = asked
            end
            write(record, lease, count, ttl, left, since)
            if head then
                local has_left, failure = pcall(leave, queue, lease)
                if not has_left then
                    run('DEL', record)
                    error(failure)
                end
            end
            return 'granted', asked and not met and {first, asked, last} or first
        end
        outcome, value = 'complete', last
    elseif holds and verb == 'renew' and not count then
        must('PEXPIRE', record, left > tonumber(ttl) and left or ttl)
        return 'renewed', 0
    elseif holds and verb == 'set_token' then
        first, outcome = reserve(counter, tokens, false, first)
        return first and 'stored' or outcome, 0
    elseif holds and rest ~= '' then
        must('SET', record, lease .. ' 0', 'PX', rest)
        pcall(notify_next, record, queue, tonumber(rest))
        return 'released', 0
    elseif holds and left ~= -2 then
        write(record, lease, count, ttl, left, since)
        return 'renewed', 0
    end

    -- The lock is free or held by another lease. If it is free, it is granted to the queue's head.
    local head = run('LINDEX', queue, 0)
    if not outcome and head and verb ~= 'serve' then
        -- A lease that renews or releases without holding the lock does not wait any more.
        leave(queue, lease)
        head = run('LINDEX', queue, 0)
    end
    if head and left == -2 then
        -- A failure here does not change the result so far.
        local is_done, _, ttl_of_head = pcall(pass_on, record, counter, queue)
        left = is_done and ttl_of_head or left
    elseif head and verb == 'serve' and left > 0 then
        pcall(notify_next, record, queue, left)
    end
    if outcome then
        return outcome, value
    elseif verb == 'complete' and was_applied(record, note, lease, text) then
        return 'released', 0
    end
    return 'lost', left == -2 and 0 or 1
end

local results, place, continued = {now}, 1, {}
at = 1
for i = 1, size, 3 do
    local record, verb, lease, ttl, note, text = keys[i], argv[at], argv[at + 1], argv[at + 2], argv[at + 3], argv[at + 4]
    local rest = verb == 'release_after' and ttl or verb == 'complete' and argv[at + 5] or ''
    local outcome, value
    at = at + (verb == 'release' and 2 or verb == 'propose' and 4 or verb == 'note' and 5 or verb == 'complete' and 6 or 3)
    unfinished, written = false, false
    if not for_rule[record] or i < for_rule[record] then
        -- Plain, and done.
        outcome, value = 'granted', tonumber(verb == 'propose' and note or now)
        if verb == 'release' then
            outcome, value = 'released', 0
        end
    else
        local counter, queue = keys[i + 1] or record .. ':token', keys[i + 2] or record .. ':queue'
        -- `first` is the first of the tokens to set, or a proposal.
        local tokens, count, first = '1', verb ~= 'renew' and '1' or nil, verb == 'propose' and tonumber(note) or nil
        local weight, permits, ago, condition
        local space = find(verb, ' ', 1, true)
        if space then
            local numbers = sub(verb, space + 1)
            verb = sub(verb, 1, space - 1)
            if verb == 'renew' then
                count = numbers
            elseif verb == 'set_token' then
                first, tokens = match(numbers, '^(%d+) (%d+)$')
                first = tonumber(first)
            else
                tokens, count, numbers = match(numbers, '^(%d+) (%d+) ?(.*)$')
                if sub(numbers, 1, 3) == 'of ' then
                    weight, permits, numbers = match(numbers, '^of (%d+) (%d+) ?(.*)$')
                end
                first = tonumber(numbers)
                ago, condition = match(numbers, '^unless (%d+) (.*)$')
            end
        end
        local held, done = for_rule[i], nil
        if held == nil then
            held = run('GET', record)
        end
        local status = type(held) == 'table' and run('HGET', record, '.')
        if type(status) == 'string' and match(status, '^latch %d+ %d+$') then
            done, outcome, value = true, 'mismatch', 'latch'
        elseif type(held) == 'table' and not (type(status) == 'string' and match(status, '^permits %d+$')) then
            done, outcome, value = true, 'failed', {'GET', held.err, record}
        elseif status or permits then
            done, outcome, value = pcall(apply_to_semaphore, {
                record = record, counter = counter, queue = queue, verb = verb, lease = lease, ttl = ttl, rest = rest,
                note = note, text = text, tokens = tokens, count = count, first = first, ago = ago, condition = condition,
                weight = tonumber(weight), permits = tonumber(permits),
            }, held)
            held = type(held) ~= 'table' and held
        end
        if done ~= false and not outcome then
            done, outcome, value = pcall(apply_to_mutex, record, counter, queue, verb, lease, ttl, held, rest, note, text,
                tokens, count, first, ago, condition)
        end
        if not done and type(outcome) == 'table' then
            outcome, value = outcome[1], outcome[2]
        elseif not done then
            -- A value is damaged in a way that no check finds.
            outcome, value = 'failed', {'EVAL', tostring(outcome), record}
        end
    end
    results[place + 1], results[place + 2] = outcome, value
    place = place + 2
    if unfinished then
        continued[#continued + 1] = (i + 2) / 3
    end
end
for i, number in ipairs(continued) do
    results[place + i] = number
end
return results
