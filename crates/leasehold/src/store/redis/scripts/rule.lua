-- The functions that mutex.lua and shares.lua share. The text before it has the keys and the arguments, `at` behind the last
-- operation, and the time as `stamp` if it was read. A call pays for each function that it creates, and for each local of
-- the text that functions refer to.

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
    return record:match('^[^:]*') .. ':client:'
end

-- Notifies the client of a lease, and returns whether the client is alive. `subscribers` is the number of its
-- connections; nil: unknown, so the receivers of the message are counted. `about` is what the message has behind the
-- record, `share` what it has behind the token.
local function notify(record, lease, first, ttl, subscribers, about, share)
    local client, number = lease:match('^(%x+):(%d+)')
    if not client then
        return false
    end
    local channel = prefix(record) .. client
    local message = string.format('%s %.0f%s %.0f %.0f %s', number, first, share or '', ttl, now, record)
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
    run('SET', record .. ':revoked', lease, 'PX', $REVOCATION_MS)
    local subscribers = run('PUBSUB', 'NUMSUB', prefix(record) .. lease:match('^%x+') .. node)
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
        last = run('SET', counter, string.format('%.0f', now), 'PX', '$RETENTION_MS', 'GET')
        if not last or type(last) == 'string' and last:find('^%d+$') and tonumber(last) < now then
            return now
        elseif type(last) == 'string' then
            run('SET', counter, last, 'PX', '$RETENTION_MS')
        end
    end
    last = must('GET', counter)
    if last then
        last = last:find('^%d+$') and tonumber(last)
        if not last or last > $TOKEN_MAX then
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
    if first - 1 > $TOKEN_MAX - tokens then
        return nil, 'exhausted'
    end
    last = first - 1 + tokens
    if high and last > high then
        local ahead = math.min(last + $HIGH_STEP, $TOKEN_MAX)
        must('HSET', admission, 'high', ahead)
        high = ahead
    end
    -- The server writes a number with all its digits.
    must('SET', counter, last, 'PX', '$RETENTION_MS')
    return first
end

-- The functions of notes and runs, which few calls need. They are created at the first use.
local created
local function notes()
    if created then
        return created
    end
    created = {}

    -- The note under a key: its lease, its number, its text and the whole value; false if there is none.
    local function read_note(key)
        local value = must('GET', key)
        if not value then
            return false
        end
        local lease, number, text = value:match('^(%x+:%d+) %d+ (%d+) (.*)$')
        if not lease then
            error({'failed', {'GET', 'WRONGTYPE this string is no annotation', key}})
        end
        return {lease = lease, number = tonumber(number), text = text, value = value}
    end

    -- Whether a lease has written a note with a larger number than that in the `value` of a note.
    local function is_outdated(note, lease, value)
        return note and note.lease == lease and note.number > tonumber(value:match('^%S+ %d+ (%d+) '))
    end

    -- Whether a release that leaves a note, its `value`, was applied before.
    function created.was_applied(record, slot, lease, value)
        local note = read_note(record .. slot)
        return note and (note.value == value or is_outdated(note, lease, value))
    end

    -- Writes a note, unless the lease has written one with a larger number. Returns an outcome.
    function created.write(record, slot, lease, value, ttl)
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
        for name, value in text:gmatch(' ([^ =]+)=([^ ]*)') do
            local seconds, micros = value:match('^(%d+)%.(%d%d%d%d%d%d)$')
            fields[name] = seconds and seconds * 1000000 + micros
        end
        local requested, started, finished = fields.requested, fields.started, fields.finished
        if text:sub(1, 2) ~= '1 ' or not (requested and started and finished) then
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
        lead = chosen and math.min(lead, $LEAD_MAX) or lead
        return math.max(slot(requested, lead), slot(started, 0)) >= slot(asked, lead)
    end

    -- Whether the run of a condition is complete that was asked for at the time `asked`, and the note in its slot, or false.
    function created.decide(record, condition, asked)
        local slot, period, anchor = condition:match('^(:completion) (%d+) ?(%d*)$')
        local note = read_note(record .. (slot or condition))
        local met = note and (not slot or is_met(note.text, tonumber(period), tonumber(anchor), tonumber(asked)))
        return met, note and note.value
    end

    -- When a lease in the queue has asked for its run. nil or false: it does not wait.
    function created.asked_at(queue, lease)
        -- A server without LPOS has no queue.
        local at = type(run('LINDEX', queue, 0)) == 'string' and must('LPOS', queue, lease)
        return at and run('LINDEX', queue, at - 1):match('^%S+ %d+ [%dxy#+]+ (%d+) ')
    end

    return created
end

-- Whether the limit of this call is reached and waiters are left.
local function is_unfinished(queue)
    return passed >= $PASS_MAX and type(run('LINDEX', queue, 0)) == 'string'
end

-- Removes dead waiters from the head of a queue, up to the first that is alive or is the `requester`. Returns that
-- one with the number of its subscribers, or nil. `entry` is that of the head, if it was read since the queue has changed.
local function pass_over(record, queue, requester, entry)
    local prefix, size = prefix(record), 1
    repeat
        local heads, channels, count = {}, {}, 0
        repeat
            local words = type(entry) == 'string' and entry or must('LINDEX', queue, 2 * count)
            entry = nil
            if not words then
                break
            end
            local lease, client, ttl, tokens, kind, weight, mark, run_of =
                words:match('^((%x+):%d+) (%d+) (%d+)([xy]?)(%d*)([#+]?) ?(.*)$')
            local is_waiter = lease and (run_of == '' or run_of:find('^%d+ :'))
            if not is_waiter and count > 0 then
                break
            elseif not is_waiter then
                error({'failed', {'LINDEX', 'WRONGTYPE this list is no queue', queue}})
            elseif lease == requester and mark ~= '+' and count == 0 then
                return {lease = lease, is_own = true}
            end
            count = count + 1
            heads[count] = {
                lease = lease, ttl = ttl, tokens = tokens, kind = kind, weight = tonumber(weight), mark = mark,
                run = run_of ~= '' and run_of, is_own = lease == requester and mark ~= '+',
            }
            channels[count] = prefix .. client .. node
        until count == size or heads[count].is_own
        if count == 0 then
            return nil
        end
        -- Without the permission for NUMSUB there is no number, and waiters count as alive.
        local subscribers, dead = run('PUBSUB', 'NUMSUB', unpack(channels)), 0
        while dead < count and subscribers[2 * dead + 2] == 0 and not heads[dead + 1].is_own do
            dead = dead + 1
        end
        if dead > 0 then
            must('LTRIM', queue, 2 * dead, -1)
            passed = passed + dead
            if node ~= '' then
                for i = 1, dead do
                    notify(record, heads[i].lease, 0, heads[i].ttl, 0)
                end
                passed = passed + dead * ($PASS_MESSAGE - 1)
            end
        end
        local head = heads[dead + 1]
        if head then
            head.subscribers = subscribers[2 * dead + 2]
            return head
        end
        size = math.min(2 * size, $PASS_CHUNK)
    until passed >= $PASS_MAX
    unfinished = is_unfinished(queue)
end

-- Drops the waiter at the head of the queue if its run is complete, and notifies it. `kind`: what its entry has behind the
-- tokens, '' for a mutex; nil: anything. One of another kind, whose record was deleted, repeats its request, and one whose
-- note cannot be read as well. Returns whether it was dropped, and otherwise the run that it waits for as a grant has it.
local function drop_needless(record, queue, head, kind)
    local is_decided, met, note
    if kind == nil or kind == head.kind then
        if not head.run then
            return false
        end
        local asked, condition = head.run:match('^(%d+) (.*)$')
        is_decided, met, note = pcall(notes().decide, record, condition, asked)
        if is_decided and not met then
            return false, note and asked .. ' ' .. note or asked
        end
    end
    must('LTRIM', queue, 2, -1)
    notify(record, head.lease, 0, is_decided and 0 or 1, head.subscribers, is_decided and note)
    passed = passed + $PASS_MESSAGE
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
            passed = passed + $PASS_MESSAGE
        end
    until passed >= $PASS_MAX
    unfinished = is_unfinished(queue)
end

-- Appends a lease to the queue, unless it is there, and returns the number of waiters before it. `at` is what LPOS
-- returns for the lease; callers may know it, and LPOS compares the whole queue. `about` is the run that it waits for.
local function join(queue, lease, at, ttl, tokens, about)
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
