-- As how many waiters a grant counts.
local PASS_GRANT = 16

-- The operation, and what its record says.
local record, counter, queue, verb, lease, op
local kind, permits, phase, version, keep, until_, used, earliest
-- Whether the first waiter behind a grant is still to be notified, whether the counter is at its end, and whether a lease
-- waits to be converted since this operation.
local owes_next, exhausted, joined_first

local function parse(text)
    local weight, number, count, first, ends, since = match(text, '^(%d+)#?(%d*) (%d+) (%d+) (%d+) ?(%d*)$')
    if not weight then
        error({'failed', {'HGET', 'WRONGTYPE this field is no holder', record}})
    end
    return {
        weight = tonumber(weight), number = tonumber(number), count = count, first = tonumber(first), ends = tonumber(ends),
        since = since,
    }
end

local function status()
    if kind == 'y' then
        return phase and format('access %.0f', phase) or 'access'
    end
    return format(version and 'permits %.0f %.0f %.0f %.0f' or 'permits %.0f', permits, version, keep, until_)
end

local function state()
    return format(earliest and '%.0f %.0f' or '%.0f', used, earliest)
end

-- Stores the head. If the memory is full, the holders are counted.
local function save()
    if type(run('HSET', record, '.', status(), 'used', state())) == 'table' then
        run('HDEL', record, 'used')
    end
end

-- Drops the holders whose leases have ended, and counts the others.
local function count_again()
    -- A failure on the way must not look like a record without holders.
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
    phase = used > 0 and phase or nil
    if #fields > 0 then
        save()
    end
end

local function live(text)
    local holder = text and parse(text)
    return holder and now < holder.ends and holder
end

local function holder_of(id)
    return live(used > 0 and must('HGET', record, id))
end

-- Keeps the record for so many milliseconds at least. Returns whether there is one.
local function keep_for(millis)
    local left = must('PTTL', record)
    if version then
        millis = math.max(millis, math.ceil((until_ - now) / 1000) + 1)
    end
    must('PEXPIRE', record, math.max(left, millis))
    return left ~= -2
end

-- Stores a holder that is counted. The expiry comes first: then its refusal changes nothing, and a full memory refuses no
-- renewal, because a script that has written may go on.
local function store(id, holder)
    local millis = math.ceil((holder.ends - now) / 1000) + 1
    if version then
        until_ = math.max(until_, holder.ends + keep)
    end
    earliest = math.min(earliest or holder.ends, holder.ends)
    local number = holder.number and '#' .. holder.number or ''
    local row = format('%.0f%s %s %.0f %.0f', holder.weight, number, holder.count, holder.first, holder.ends)
    row = holder.since ~= '' and row .. ' ' .. holder.since or row
    local exists = keep_for(millis)
    must('HSET', record, id, row, '.', status(), 'used', state())
    if not exists then
        keep_for(millis)
    end
end

local function remove_holder(id, holder)
    must('HDEL', record, id)
    used = used - holder.weight
    if used == 0 then
        earliest, phase = nil, nil
    end
    save()
end

-- Stores a new holder, and removes it from the queue by a function. If that fails, it is no holder.
local function add_holder(id, holder, remove, ...)
    -- Changes nothing. It proves that the permits can be taken back.
    must('HDEL', record, id)
    used = used + holder.weight
    store(id, holder)
    local removed, failure = pcall(remove, ...)
    if not removed then
        remove_holder(id, holder)
        error(failure)
    end
end

-- What a holder has instead.
local function convert(id, holder, weight, first, ends)
    used = used - holder.weight + weight
    holder.weight, holder.first, holder.ends = weight, first, math.max(holder.ends, ends)
    store(id, holder)
end

-- The tokens of a new holder: of its own, or of a reader the one of all readers. Without, also an outcome.
local function tokens_of(weight, tokens)
    if kind ~= 'y' or weight == FULL then
        return reserve(counter, tokens)
    elseif not phase then
        local first, outcome = reserve(counter, '1')
        if not first then
            return nil, outcome
        end
        phase = first
    end
    return phase
end

-- The same for a holder that is converted.
local function converted_tokens(holder, weight, tokens)
    if kind == 'y' and weight < FULL then
        return tokens_of(weight)
    elseif weight == holder.weight then
        return holder.first
    end
    local first, outcome = reserve(counter, tokens)
    if first then
        phase = nil
    end
    -- Fewer permits are always granted.
    return first or weight < holder.weight and holder.first or nil, outcome
end

-- The smallest number that no holder has, and the smallest of the first tokens of all holders.
local function numbers_and_floor()
    local taken, smallest, number = {}, nil, 0
    local fields = must('HGETALL', record)
    for i = 1, #fields, 2 do
        local holder = find(fields[i], ':', 1, true) and live(fields[i + 1])
        if holder then
            taken[holder.number or -1] = true
            smallest = math.min(smallest or holder.first, holder.first)
        end
    end
    while taken[number] do
        number = number + 1
    end
    return number, smallest
end

-- What a message of a grant has behind the token.
local function share_of(holder, smallest)
    local share = format('%s%.0f', kind, holder.weight)
    return holder.number and format('%s#%.0f#%.0f', share, holder.number, math.min(smallest, holder.first)) or share
end

-- Grants to the first waiter. Returns whether there was a token.
local function grant(head, holder, about)
    local first
    if holder then
        first = converted_tokens(holder, head.weight, head.tokens)
    else
        first = tokens_of(head.weight, head.tokens)
    end
    if not first then
        return false
    end
    local ttl = math.min(tonumber(head.ttl), ACCEPTANCE_MS)
    local ends, number, smallest = now + ttl * 1000, nil, nil
    if head.mark == '#' or holder and holder.number then
        number, smallest = numbers_and_floor()
    end
    if holder then
        must('LTRIM', queue, 2, -1)
        convert(head.lease, holder, head.weight, first, ends)
        if smallest then
            smallest = select(2, numbers_and_floor())
        end
        -- Without a message it asks again, and learns what it has.
        notify(record, head.lease, first, ttl, head.subscribers, nil, share_of(holder, smallest))
        owes_next = true
    else
        holder = {
            weight = head.weight, number = number, count = '1', first = first, ends = ends,
            since = about and match(about, '^%d+') or '',
        }
        add_holder(head.lease, holder, must, 'LTRIM', queue, 2, -1)
        smallest = smallest or first
        if notify(record, head.lease, first, ttl, head.subscribers, about, share_of(holder, smallest)) then
            owes_next = true
        else
            -- Its connection is closed, or it cannot be notified.
            remove_holder(head.lease, holder)
        end
    end
    passed = passed + PASS_GRANT
    return true
end

-- Drops the first waiter if it never fits, or its run is complete, or its lease has ended. Otherwise returns false, and what a
-- grant has of its run, and its holder if it waits to be converted.
local function drop(head)
    local holder = head.mark == '+' and holder_of(head.lease)
    if head.mark == '+' and (not holder or holder.count == '0') then
        must('LTRIM', queue, 2, -1)
        passed = passed + 1
        return true
    elseif head.kind == kind and head.weight > permits then
        -- It asks again, and gets the mismatch.
        must('LTRIM', queue, 2, -1)
        notify(record, head.lease, 0, 1, head.subscribers)
        passed = passed + PASS_MESSAGE
        return true
    end
    local dropped, about = drop_needless(record, queue, head, kind)
    return dropped, about, holder
end

-- Grants what is free to the first waiters, as far as they fit. Then it notifies the first one behind them.
local function serve(requester)
    while not joined_first and (written or verb == 'serve' or used < permits) do
        local head = pass_over(record, queue, requester)
        if not head or head.is_own then
            break
        end
        local dropped, about, holder = drop(head)
        if not dropped then
            if used - (holder and holder.weight or 0) + head.weight > permits then
                break
            elseif not grant(head, holder, about) then
                exhausted = true
                return
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

-- Without holders, waiters and a set limit any kind may take the name.
local function is_free()
    return used == 0 and not (version and now < until_) and must('EXISTS', queue) == 0
end

local function refused(position)
    local left = earliest and math.ceil((earliest - now) / 1000) or 0
    return 'refused', position and {left, position} or left
end

-- The value of a grant.
local function granted(holder, asked, last)
    if holder.number then
        local _, smallest = numbers_and_floor()
        return 'granted', {holder.first, asked or false, last or false, holder.number, smallest}
    end
    return 'granted', asked and {holder.first, asked, last} or holder.first
end

-- Takes a name that is free for the kind of the claim. Otherwise returns how it does not match.
local function take()
    if is_free() then
        kind, permits, phase, version = op.kind, op.permits, nil, nil
    elseif op.kind ~= kind then
        return kind == 'y' and 'rwlock' or 'semaphore'
    elseif not version and op.permits ~= permits then
        return permits
    end
end

-- A request for more permits than there are. The limit may have been set while it waited.
local function never_fits()
    leave(queue, lease)
    return 'mismatch', 'weight'
end

local function acquire()
    local mismatch = take()
    if mismatch then
        return 'mismatch', mismatch
    end
    local holder = holder_of(lease)
    if holder and holder.count == '0' then
        return refused()
    elseif not holder and op.weight > permits then
        return never_fits()
    elseif not holder and exhausted then
        return 'exhausted', 0
    end
    local at = not holder and must('LPOS', queue, lease)
    if at and find(must('LINDEX', queue, at - 1), '^%S+ %d+ %d+[xy]%d+%+') then
        -- The lease that waited to be converted has ended.
        leave(queue, lease)
        at = false
    end
    local position = at and (at - 1) / 2 or must('LLEN', queue) / 2
    local met, last, asked
    if op.condition then
        -- The first request counts: a holder and a waiter keep its time.
        asked = holder and holder.since or at and asked_at(queue, lease)
        asked = asked and asked ~= '' and asked or format('%.0f', math.max(now - op.ago, 0))
        met, last = decide(record, op.condition, asked)
    end
    local ends = now + op.ttl * 1000
    if holder then
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
        must('HSET', record, '.', status(), 'used', state())
        keep_for(2 * op.ttl + 1000)
        local tokens = op.tokens .. kind .. op.weight .. op.mark
        return refused(join(queue, lease, at, op.ttl, tokens, asked and asked .. ' ' .. op.condition))
    else
        local first, outcome = tokens_of(op.weight, op.tokens)
        if not first then
            return outcome, 0
        end
        local number = op.mark == '#' and numbers_and_floor() or nil
        holder = {
            weight = op.weight, number = number, count = op.count, first = first, ends = ends, since = asked or '',
        }
        add_holder(lease, holder, leave, queue, lease)
    end
    return granted(holder, not met and asked, last)
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

-- The first waiter if it is to be converted: its lease, and its entry.
local function conversion()
    local entry = must('LINDEX', queue, 0)
    if entry and find(entry, '^%S+ %d+ %d+[xy]%d+%+') then
        return match(entry, '^%S+'), entry
    end
end

-- A lease waits before all others, unless it does for the same.
local function join_first(entry)
    local id, other = conversion()
    local tokens = op.tokens .. kind .. op.weight .. '+'
    local same = match(other or '', '^%S+ %d+ %d+([xy]%d+)%+')
    if id and same ~= kind .. op.weight then
        leave(queue, lease)
        id = nil
    end
    if id then
        join(queue, lease, 1, op.ttl, tokens)
        return
    end
    joined_first = true
    must('LPUSH', queue, lease, lease .. ' ' .. op.ttl .. ' ' .. tokens)
    local kept, retention = run('PTTL', queue), 2 * op.ttl + 1000
    if type(kept) == 'table' or kept < retention then
        local reply = run('PEXPIRE', queue, retention)
        if type(reply) == 'table' then
            run('LTRIM', queue, 2, -1)
            error({'failed', {'PEXPIRE', reply.err, queue}})
        end
    end
    keep_for(retention)
end

local function convert_lease()
    if is_free() then
        return lost()
    elseif op.kind ~= kind then
        return 'mismatch', kind == 'y' and 'rwlock' or 'semaphore'
    elseif not version and op.permits ~= permits then
        return 'mismatch', permits
    end
    local holder = holder_of(lease)
    if not holder or holder.count == '0' then
        return lost()
    end
    local weight = op.weight
    if weight > math.max(permits, holder.weight) then
        return never_fits()
    elseif weight ~= holder.weight and op.first ~= holder.first then
        return 'outdated', 0
    elseif weight > holder.weight and used - holder.weight + weight > permits then
        if not op.wait then
            return refused()
        end
        local id = conversion()
        if id ~= lease and (id or holder.weight <= math.floor(permits / 2)) then
            return 'mismatch', 'conversion'
        end
        join_first()
        return refused(0)
    end
    local first, outcome = converted_tokens(holder, weight, op.tokens)
    if not first then
        return outcome, 0
    end
    if conversion() == lease then
        must('LTRIM', queue, 2, -1)
    end
    convert(lease, holder, weight, first, now + op.ttl * 1000)
    return granted(holder)
end

-- Sets the number of permits. A repeated setting changes nothing.
local function set_limit()
    if is_free() then
        kind, permits, phase, version = 'x', op.permits, nil, nil
    elseif kind ~= 'x' then
        return 'mismatch', 'rwlock'
    end
    local stored = version or 0
    local is_repeated = stored > 0 and op.version == stored - 1 and permits == op.permits
    if op.version and op.version ~= stored and not is_repeated then
        return 'outdated', 0
    end
    permits, version = op.permits, is_repeated and stored or stored + 1
    keep, until_ = op.keep, math.max(stored > 0 and until_ or 0, now + op.keep)
    local exists = keep_for(0)
    must('HSET', record, '.', status(), 'used', state())
    if not exists then
        keep_for(0)
    end
    return 'stored', 0
end

local function end_conversion(id)
    if conversion() == id then
        must('LTRIM', queue, 2, -1)
    end
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
            end_conversion(id)
            remove_holder(id, holder)
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
        local first, outcome = reserve(counter, op.tokens, false, op.first)
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
    end_conversion(lease)
    if op.rest == '' then
        remove_holder(lease, holder)
    else
        holder.count, holder.ends, owes_next = '0', now + op.rest * 1000, true
        store(lease, holder)
    end
    return 'released', 0
end

-- The words of a claim: its kind, its permits, how many there are, and its mark in the queue.
local function claim(words)
    local name, weight, limit = match(words, '^(%a+) (%d+) ?(%d*)')
    op.kind = name == 'access' and 'y' or name == 'mutex' and 'm' or 'x'
    op.weight, op.permits = tonumber(weight), tonumber(limit) or FULL
    op.mark = name == 'numbered' and '#' or ''
end

-- The parts of an operation behind its verb.
local function read_op(numbers)
    if verb == 'renew' then
        op.count = numbers ~= '' and numbers or nil
    elseif verb == 'set_token' then
        local first, tokens = match(numbers, '^(%d+) (%d+)$')
        op.first, op.tokens = tonumber(first), tokens
    elseif verb == 'set_limit' then
        local limit, replaced, span = match(numbers, '^(%d+) (%S+) (%d+)$')
        op.permits, op.version, op.keep = tonumber(limit), tonumber(replaced), tonumber(span)
    elseif verb == 'convert' then
        local tokens, first, wait, words = match(numbers, '^(%d+) (%d+) (%d) (.*)$')
        op.tokens, op.first, op.wait = tokens, tonumber(first), wait == '1'
        claim(words)
    elseif numbers ~= '' then
        local tokens, count, words = match(numbers, '^(%d+) (%d+) ?(.*)$')
        op.tokens, op.count = tokens, count
        op.ago, op.condition = match(words, 'unless (%d+) (.*)$')
        if find(words, '^%a+ %d') and not find(words, '^unless') then
            claim(words)
        end
    end
end

-- Applies an operation to what its record says. Returns an outcome and a value.
local function apply(own)
    if not used or used > 0 and not earliest or earliest and now >= earliest then
        count_again()
    end
    if verb == 'acquire' or verb == 'queue' then
        serve(lease)
        if not op.kind and is_free() then
            return 'elsewhere', 0
        end
        return acquire()
    elseif verb == 'convert' then
        return convert_lease()
    elseif verb == 'set_limit' then
        serve()
        return set_limit()
    elseif verb == 'serve' then
        owes_next = true
        return 'lost', 0
    elseif verb == 'revoke' then
        return revoke()
    elseif verb == 'set_token' and kind == 'y' and not is_free() then
        return 'mismatch', 'rwlock'
    end
    local holder = used > 0 and live(own)
    if holder and holder.count ~= '0' then
        return of_holder(holder)
    end
    return lost()
end

-- How a free name for which leases wait as a mutex does not match; nil if all of them are dropped. A living one that is not
-- the requester gets the lock, which is left to the other script.
local function use_of_mutex()
    repeat
        local head = pass_over(record, queue, (verb == 'acquire' or verb == 'queue') and lease)
        if not head then
            -- A conversion does not take the name.
            return (unfinished or verb == 'convert') and 'lock' or nil
        elseif head.is_own then
            return 'lock'
        elseif not drop_needless(record, queue, head, '') then
            return 'queue'
        end
    until passed >= PASS_MAX
    unfinished = is_unfinished(queue)
    return (unfinished or verb == 'convert') and 'lock' or nil
end

local function apply_op()
    if op.kind == 'm' then
        return 'mismatch', 'conversion'
    end
    local fields = run('HMGET', record, '.', 'used', lease)
    if fields.err then
        local held = run('GET', record)
        if type(held) ~= 'string' then
            return 'failed', {'HMGET', fields.err, record}
        elseif not op.kind and verb ~= 'set_limit' then
            return 'elsewhere', 0
        elseif byte(held, 33) ~= COLON then
            return 'failed', {'GET', 'WRONGTYPE this string is no record', record}
        end
        return 'mismatch', 'lock'
    end
    local head = fields[1] or ''
    local limit, words = match(head, '^permits (%d+) ?(.*)$')
    kind, permits, phase, version, keep, until_ = 'x', tonumber(limit), nil, nil, nil, nil
    if limit then
        local set, span, ends = match(words, '^(%d+) (%d+) (%d+)$')
        version, keep, until_ = tonumber(set), tonumber(span), tonumber(ends)
    elseif match(head, '^access') then
        kind, permits, phase = 'y', FULL, tonumber(match(head, '^access (%d+)$'))
    elseif match(head, '^latch %d+ %d+$') then
        return 'mismatch', 'latch'
    elseif head ~= '' or must('EXISTS', record) == 1 then
        return 'failed', {'HMGET', 'WRONGTYPE this hash is no record', record}
    elseif not op.kind and verb ~= 'set_limit' then
        return 'elsewhere', 0
    else
        -- A free name, unless a lease waits for it as a mutex.
        local waiter = run('LINDEX', queue, 0)
        if type(waiter) == 'string' and not find(waiter, '^%S+ %d+ %d+[xy]') then
            local use = use_of_mutex()
            if use then
                return 'mismatch', use
            end
        end
        kind, permits = op.kind or 'x', op.permits
    end
    local sum, ends = match(fields[2] or '', '^(%d+) ?(%d*)$')
    used, earliest = tonumber(sum), tonumber(ends)
    local done, outcome, value = pcall(apply, fields[3])
    -- A failure from here on does not change the result.
    if used and outcome ~= 'elsewhere' then
        pcall(serve, (verb == 'acquire' or verb == 'queue') and lease)
    end
    if used == 0 and not (version and now < until_) and run('EXISTS', queue) == 0 then
        run('DEL', record)
    end
    if not done then
        error(outcome)
    end
    return outcome, value
end

local place, continued, elsewhere = 1, {}, {}
results[1], at = now, 1
for i = 1, size, 3 do
    local words = argv[at]
    local space = find(words, ' ', 1, true)
    record, counter, queue = keys[i], keys[i + 1] or keys[i] .. ':token', keys[i + 2] or keys[i] .. ':queue'
    verb, lease = space and sub(words, 1, space - 1) or words, argv[at + 1]
    op = {ttl = argv[at + 2], note = argv[at + 3], text = argv[at + 4], tokens = '1', count = verb ~= 'renew' and '1' or nil}
    op.rest = verb == 'release_after' and op.ttl or verb == 'complete' and argv[at + 5] or ''
    at = at + (SIZES[verb] or 3)
    verb = verb == 'propose' and 'acquire' or verb
    unfinished, written, owes_next, exhausted, joined_first = false, false, false, false, false
    local done, outcome, value = true, 'elsewhere', 0
    if results[place + 1] then
        outcome, value = results[place + 1], results[place + 2]
    elseif not elsewhere[record] then
        read_op(space and sub(words, space + 1) or '')
        done, outcome, value = pcall(apply_op)
    end
    if not done and type(outcome) == 'table' then
        outcome, value = outcome[1], outcome[2]
    elseif not done then
        -- A value is damaged in a way that no check finds.
        outcome, value = 'failed', {'EVAL', tostring(outcome), record}
    elseif outcome == 'elsewhere' then
        -- So that the operations on a record stay in order.
        elsewhere[record] = true
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
