-- The operation with its keys, and what its record says. The latter also has whether the first waiter behind a grant is
-- still to be notified (`owes_next`), whether the counter is at its end (`exhausted`), and whether a lease waits to be
-- converted since this operation (`joined_first`).
local op, body

local function parse(text)
    local weight, number, count, first, ends, since = text:match('^(%d+)#?(%d*) (%d+) (%d+) (%d+) ?(%d*)$')
    if not weight then
        error({'failed', {'HGET', 'WRONGTYPE this field is no holder', op.record}})
    end
    return {
        weight = tonumber(weight), number = tonumber(number), count = count, first = tonumber(first), ends = tonumber(ends),
        since = since,
    }
end

local function status()
    if body.kind == 'y' then
        return body.phase and string.format('access %.0f', body.phase) or 'access'
    end
    return string.format(body.version and 'permits %.0f %.0f %.0f %.0f' or 'permits %.0f', body.permits, body.version, body.keep, body.until_)
end

local function state()
    return string.format(body.earliest and '%.0f %.0f' or '%.0f', body.used, body.earliest)
end

-- Stores the head. If the memory is full, the holders are counted.
local function save()
    if type(run('HSET', op.record, '.', status(), 'used', state())) == 'table' then
        run('HDEL', op.record, 'used')
    end
end

-- Drops the holders whose leases have ended, and counts the others.
local function count_again()
    -- A failure on the way must not look like a record without holders.
    body.used, body.earliest = nil, nil
    local sum, first = 0, nil
    local fields = must('HGETALL', op.record)
    for i = 1, #fields, 2 do
        if fields[i]:find(':', 1, true) then
            local holder = parse(fields[i + 1])
            if now >= holder.ends then
                must('HDEL', op.record, fields[i])
            else
                sum = sum + holder.weight
                first = math.min(first or holder.ends, holder.ends)
            end
        end
    end
    body.used, body.earliest = sum, first
    body.phase = body.used > 0 and body.phase or nil
    if #fields > 0 then
        save()
    end
end

local function live(text)
    local holder = text and parse(text)
    return holder and now < holder.ends and holder
end

local function holder_of(id)
    return live(body.used > 0 and must('HGET', op.record, id))
end

-- Keeps the record for so many milliseconds at least. Returns whether there is one.
local function keep_for(millis)
    local left = must('PTTL', op.record)
    if body.version then
        millis = math.max(millis, math.ceil((body.until_ - now) / 1000) + 1)
    end
    must('PEXPIRE', op.record, math.max(left, millis))
    return left ~= -2
end

-- Stores a holder that is counted. The expiry comes first: then its refusal changes nothing, and a full memory refuses no
-- renewal, because a script that has written may go on.
local function store(id, holder)
    local millis = math.ceil((holder.ends - now) / 1000) + 1
    if body.version then
        body.until_ = math.max(body.until_, holder.ends + body.keep)
    end
    body.earliest = math.min(body.earliest or holder.ends, holder.ends)
    local number = holder.number and '#' .. holder.number or ''
    local row = string.format('%.0f%s %s %.0f %.0f', holder.weight, number, holder.count, holder.first, holder.ends)
    row = holder.since ~= '' and row .. ' ' .. holder.since or row
    local exists = keep_for(millis)
    must('HSET', op.record, id, row, '.', status(), 'used', state())
    if not exists then
        keep_for(millis)
    end
end

local function remove_holder(id, holder)
    must('HDEL', op.record, id)
    body.used = body.used - holder.weight
    if body.used == 0 then
        body.earliest, body.phase = nil, nil
    end
    save()
end

-- Stores a new holder, and removes it from the queue by a function. If that fails, it is no holder.
local function add_holder(id, holder, remove, ...)
    -- Changes nothing. It proves that the permits can be taken back.
    must('HDEL', op.record, id)
    body.used = body.used + holder.weight
    store(id, holder)
    local removed, failure = pcall(remove, ...)
    if not removed then
        remove_holder(id, holder)
        error(failure)
    end
end

-- What a holder has instead.
local function convert(id, holder, weight, first, ends)
    body.used = body.used - holder.weight + weight
    holder.weight, holder.first, holder.ends = weight, first, math.max(holder.ends, ends)
    store(id, holder)
end

-- The tokens of a new holder: of its own, or of a reader the one of all readers. Without, also an outcome.
local function tokens_of(weight, tokens)
    if body.kind ~= 'y' or weight == $ACCESS_LIMIT then
        return reserve(op.counter, tokens)
    elseif not body.phase then
        local first, outcome = reserve(op.counter, '1')
        if not first then
            return nil, outcome
        end
        body.phase = first
    end
    return body.phase
end

-- The same for a holder that is converted.
local function converted_tokens(holder, weight, tokens)
    if body.kind == 'y' and weight < $ACCESS_LIMIT then
        return tokens_of(weight)
    elseif weight == holder.weight then
        return holder.first
    end
    local first, outcome = reserve(op.counter, tokens)
    if first then
        body.phase = nil
    end
    -- Fewer permits are always granted.
    return first or weight < holder.weight and holder.first or nil, outcome
end

-- The smallest number that no holder has, and the smallest of the first tokens of all holders.
local function numbers_and_floor()
    local taken, smallest, number = {}, nil, 0
    local fields = must('HGETALL', op.record)
    for i = 1, #fields, 2 do
        local holder = fields[i]:find(':', 1, true) and live(fields[i + 1])
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
    local share = string.format('%s%.0f', body.kind, holder.weight)
    return holder.number and string.format('%s#%.0f#%.0f', share, holder.number, math.min(smallest, holder.first)) or share
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
    local ttl = math.min(tonumber(head.ttl), $ACCEPTANCE_MS)
    local ends, number, smallest = now + ttl * 1000, nil, nil
    if head.mark == '#' or holder and holder.number then
        number, smallest = numbers_and_floor()
    end
    if holder then
        must('LTRIM', op.queue, 2, -1)
        convert(head.lease, holder, head.weight, first, ends)
        if smallest then
            smallest = select(2, numbers_and_floor())
        end
        -- Without a message it asks again, and learns what it has.
        notify(op.record, head.lease, first, ttl, head.subscribers, nil, share_of(holder, smallest))
        body.owes_next = true
    else
        holder = {
            weight = head.weight, number = number, count = '1', first = first, ends = ends,
            since = about and about:match('^%d+') or '',
        }
        add_holder(head.lease, holder, must, 'LTRIM', op.queue, 2, -1)
        smallest = smallest or first
        if notify(op.record, head.lease, first, ttl, head.subscribers, about, share_of(holder, smallest)) then
            body.owes_next = true
        else
            -- Its connection is closed, or it cannot be notified.
            remove_holder(head.lease, holder)
        end
    end
    passed = passed + $PASS_GRANT
    return true
end

-- Drops the first waiter if it never fits, or its run is complete, or its lease has ended. Otherwise returns false, and what a
-- grant has of its run, and its holder if it waits to be converted.
local function drop(head)
    local holder = head.mark == '+' and holder_of(head.lease)
    if head.mark == '+' and (not holder or holder.count == '0') then
        must('LTRIM', op.queue, 2, -1)
        passed = passed + 1
        return true
    elseif head.kind == body.kind and head.weight > body.permits then
        -- It asks again, and gets the mismatch.
        must('LTRIM', op.queue, 2, -1)
        notify(op.record, head.lease, 0, 1, head.subscribers)
        passed = passed + $PASS_MESSAGE
        return true
    end
    local dropped, about = drop_needless(op.record, op.queue, head, body.kind)
    return dropped, about, holder
end

-- Grants what is free to the first waiters, as far as they fit. Then it notifies the first one behind them.
local function serve(requester)
    while not body.joined_first and (written or op.verb == 'serve' or body.used < body.permits) do
        local head = pass_over(op.record, op.queue, requester)
        if not head or head.is_own then
            break
        end
        local dropped, about, holder = drop(head)
        if not dropped then
            if body.used - (holder and holder.weight or 0) + head.weight > body.permits then
                break
            elseif not grant(head, holder, about) then
                body.exhausted = true
                return
            end
        end
        if passed >= $PASS_MAX then
            unfinished = is_unfinished(op.queue)
            return
        end
    end
    if unfinished then
        return
    elseif body.owes_next and body.earliest then
        pcall(notify_next, op.record, op.queue, math.ceil((body.earliest - now) / 1000))
    end
    body.owes_next = false
end

-- Without holders, waiters and a set limit any kind may take the name.
local function is_free()
    return body.used == 0 and not (body.version and now < body.until_) and must('EXISTS', op.queue) == 0
end

local function refused(position)
    local left = body.earliest and math.ceil((body.earliest - now) / 1000) or 0
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
        body.kind, body.permits, body.phase, body.version = op.kind, op.permits, nil, nil
    elseif op.kind ~= body.kind then
        return body.kind == 'y' and 'rwlock' or 'semaphore'
    elseif not body.version and op.permits ~= body.permits then
        return body.permits
    end
end

-- A request for more permits than there are. The limit may have been set while it waited.
local function never_fits()
    leave(op.queue, op.lease)
    return 'mismatch', 'weight'
end

local function acquire()
    local mismatch = take()
    if mismatch then
        return 'mismatch', mismatch
    end
    local holder = holder_of(op.lease)
    if holder and holder.count == '0' then
        return refused()
    elseif not holder and op.weight > body.permits then
        return never_fits()
    elseif not holder and body.exhausted then
        return 'exhausted', 0
    end
    local at = not holder and must('LPOS', op.queue, op.lease)
    if at and must('LINDEX', op.queue, at - 1):find('^%S+ %d+ %d+[xy]%d+%+') then
        -- The lease that waited to be converted has ended.
        leave(op.queue, op.lease)
        at = false
    end
    local position = at and (at - 1) / 2 or must('LLEN', op.queue) / 2
    local met, last, asked
    if op.condition then
        -- The first request counts: a holder and a waiter keep its time.
        asked = holder and holder.since or at and notes().asked_at(op.queue, op.lease)
        asked = asked and asked ~= '' and asked or string.format('%.0f', math.max(now - op.ago, 0))
        met, last = notes().decide(op.record, op.condition, asked)
    end
    local ends = now + op.ttl * 1000
    if holder then
        holder.count, holder.ends = op.count, math.max(holder.ends, ends)
        store(op.lease, holder)
    elseif met then
        leave(op.queue, op.lease)
        return 'complete', last
    elseif position > 0 or body.used + op.weight > body.permits then
        if op.verb ~= 'queue' then
            return refused()
        end
        -- First, so that a full memory refuses the request before it waits.
        must('HSET', op.record, '.', status(), 'used', state())
        keep_for(2 * op.ttl + 1000)
        local tokens = op.tokens .. body.kind .. op.weight .. op.mark
        return refused(join(op.queue, op.lease, at, op.ttl, tokens, asked and asked .. ' ' .. op.condition))
    else
        local first, outcome = tokens_of(op.weight, op.tokens)
        if not first then
            return outcome, 0
        end
        local number = op.mark == '#' and numbers_and_floor() or nil
        holder = {
            weight = op.weight, number = number, count = op.count, first = first, ends = ends, since = asked or '',
        }
        add_holder(op.lease, holder, leave, op.queue, op.lease)
    end
    return granted(holder, not met and asked, last)
end

-- The outcome for a lease that does not hold. It does not wait any more.
local function lost()
    leave(op.queue, op.lease)
    serve()
    if op.verb == 'complete' and notes().was_applied(op.record, op.note, op.lease, op.text) then
        return 'released', 0
    end
    return 'lost', body.used > 0 and 1 or 0
end

-- The first waiter if it is to be converted: its lease, and its entry.
local function conversion()
    local entry = must('LINDEX', op.queue, 0)
    if entry and entry:find('^%S+ %d+ %d+[xy]%d+%+') then
        return entry:match('^%S+'), entry
    end
end

-- A lease waits before all others, unless it does for the same.
local function join_first()
    local id, other = conversion()
    local tokens = op.tokens .. body.kind .. op.weight .. '+'
    local same = (other or ''):match('^%S+ %d+ %d+([xy]%d+)%+')
    if id and same ~= body.kind .. op.weight then
        leave(op.queue, op.lease)
        id = nil
    end
    if id then
        join(op.queue, op.lease, 1, op.ttl, tokens)
        return
    end
    body.joined_first = true
    must('LPUSH', op.queue, op.lease, op.lease .. ' ' .. op.ttl .. ' ' .. tokens)
    local kept, retention = run('PTTL', op.queue), 2 * op.ttl + 1000
    if type(kept) == 'table' or kept < retention then
        local reply = run('PEXPIRE', op.queue, retention)
        if type(reply) == 'table' then
            run('LTRIM', op.queue, 2, -1)
            error({'failed', {'PEXPIRE', reply.err, op.queue}})
        end
    end
    keep_for(retention)
end

local function convert_lease()
    if is_free() then
        return lost()
    elseif op.kind ~= body.kind then
        return 'mismatch', body.kind == 'y' and 'rwlock' or 'semaphore'
    elseif not body.version and op.permits ~= body.permits then
        return 'mismatch', body.permits
    end
    local holder = holder_of(op.lease)
    if not holder or holder.count == '0' then
        return lost()
    end
    local weight = op.weight
    if weight > math.max(body.permits, holder.weight) then
        return never_fits()
    elseif weight ~= holder.weight and op.first ~= holder.first then
        return 'outdated', 0
    elseif weight > holder.weight and body.used - holder.weight + weight > body.permits then
        if not op.wait then
            return refused()
        end
        local id = conversion()
        if id ~= op.lease and (id or holder.weight <= math.floor(body.permits / 2)) then
            return 'mismatch', 'conversion'
        end
        join_first()
        return refused(0)
    end
    local first, outcome = converted_tokens(holder, weight, op.tokens)
    if not first then
        return outcome, 0
    end
    if conversion() == op.lease then
        must('LTRIM', op.queue, 2, -1)
    end
    convert(op.lease, holder, weight, first, now + op.ttl * 1000)
    return granted(holder)
end

-- Sets the number of permits. A repeated setting changes nothing.
local function set_limit()
    if is_free() then
        body.kind, body.permits, body.phase, body.version = 'x', op.permits, nil, nil
    elseif body.kind ~= 'x' then
        return 'mismatch', 'rwlock'
    end
    local stored = body.version or 0
    local is_repeated = stored > 0 and op.version == stored - 1 and body.permits == op.permits
    if op.version and op.version ~= stored and not is_repeated then
        return 'outdated', 0
    end
    body.permits, body.version = op.permits, is_repeated and stored or stored + 1
    body.keep, body.until_ = op.keep, math.max(stored > 0 and body.until_ or 0, now + op.keep)
    local exists = keep_for(0)
    must('HSET', op.record, '.', status(), 'used', state())
    if not exists then
        keep_for(0)
    end
    return 'stored', 0
end

local function end_conversion(id)
    if conversion() == id then
        must('LTRIM', op.queue, 2, -1)
    end
end

local function revoke()
    local revoked, ids = {}, {op.lease}
    if op.lease == '' then
        ids = {}
        local fields = must('HGETALL', op.record)
        for i = 1, #fields, 2 do
            ids[#ids + 1] = fields[i]
        end
        -- Numbers have no leading zeros.
        table.sort(ids, function(a, b)
            local client, other = a:sub(1, 33), b:sub(1, 33)
            return client < other or client == other and (#a < #b or #a == #b and a < b)
        end)
    end
    for _, id in ipairs(ids) do
        local holder = id:find(':', 1, true) and holder_of(id)
        if holder then
            end_conversion(id)
            remove_holder(id, holder)
            revoked[#revoked + 1] = id
            notify_revoked(op.record, id)
        end
    end
    return 'revoked', revoked
end

local function of_holder(holder)
    if op.verb == 'renew' then
        holder.count = op.count or holder.count
        holder.ends = math.max(holder.ends, now + op.ttl * 1000)
        store(op.lease, holder)
        return 'renewed', 1
    elseif op.verb == 'set_token' then
        local first, outcome = reserve(op.counter, op.tokens, false, op.first)
        if not first then
            return outcome, 0
        end
        holder.first = op.first
        store(op.lease, holder)
        return 'stored', 0
    end
    if op.verb == 'note' or op.verb == 'complete' then
        -- First, so that no release forgets its note.
        local outcome = notes().write(op.record, op.note, op.lease, op.text, op.ttl)
        if op.verb == 'note' then
            return outcome, 0
        end
    end
    end_conversion(op.lease)
    if op.rest == '' then
        remove_holder(op.lease, holder)
    else
        holder.count, holder.ends, body.owes_next = '0', now + op.rest * 1000, true
        store(op.lease, holder)
    end
    return 'released', 0
end

-- The words of a claim: its kind, its permits, how many there are, and its mark in the queue.
local function claim(words)
    local name, weight, limit = words:match('^(%a+) (%d+) ?(%d*)')
    op.kind = name == 'access' and 'y' or name == 'mutex' and 'm' or 'x'
    op.weight, op.permits = tonumber(weight), tonumber(limit) or $ACCESS_LIMIT
    op.mark = name == 'numbered' and '#' or ''
end

-- The parts of an operation behind its verb.
local function read_op(numbers)
    if op.verb == 'renew' then
        op.count = numbers ~= '' and numbers or nil
    elseif op.verb == 'set_token' then
        local first, tokens = numbers:match('^(%d+) (%d+)$')
        op.first, op.tokens = tonumber(first), tokens
    elseif op.verb == 'set_limit' then
        local limit, replaced, span = numbers:match('^(%d+) (%S+) (%d+)$')
        op.permits, op.version, op.keep = tonumber(limit), tonumber(replaced), tonumber(span)
    elseif op.verb == 'convert' then
        local tokens, first, wait, words = numbers:match('^(%d+) (%d+) (%d) (.*)$')
        op.tokens, op.first, op.wait = tokens, tonumber(first), wait == '1'
        claim(words)
    elseif numbers ~= '' then
        local tokens, count, words = numbers:match('^(%d+) (%d+) ?(.*)$')
        op.tokens, op.count = tokens, count
        op.ago, op.condition = words:match('unless (%d+) (.*)$')
        if words:find('^%a+ %d') and not words:find('^unless') then
            claim(words)
        end
    end
end

-- Applies an operation to what its record says. Returns an outcome and a value.
local function apply(own)
    if not body.used or body.used > 0 and not body.earliest or body.earliest and now >= body.earliest then
        count_again()
    end
    if op.verb == 'acquire' or op.verb == 'queue' then
        serve(op.lease)
        if not op.kind and is_free() then
            return 'elsewhere', 0
        end
        return acquire()
    elseif op.verb == 'convert' then
        return convert_lease()
    elseif op.verb == 'set_limit' then
        serve()
        return set_limit()
    elseif op.verb == 'serve' then
        body.owes_next = true
        return 'lost', 0
    elseif op.verb == 'revoke' then
        return revoke()
    elseif op.verb == 'set_token' and body.kind == 'y' and not is_free() then
        return 'mismatch', 'rwlock'
    end
    local holder = body.used > 0 and live(own)
    if holder and holder.count ~= '0' then
        return of_holder(holder)
    end
    return lost()
end

-- How a free name for which leases wait as a mutex does not match; nil if all of them are dropped. A living one that is not
-- the requester gets the lock, which is left to the other script.
local function use_of_mutex()
    repeat
        local head = pass_over(op.record, op.queue, (op.verb == 'acquire' or op.verb == 'queue') and op.lease)
        if not head then
            -- A conversion does not take the name.
            return (unfinished or op.verb == 'convert') and 'lock' or nil
        elseif head.is_own then
            return 'lock'
        elseif not drop_needless(op.record, op.queue, head, '') then
            return 'queue'
        end
    until passed >= $PASS_MAX
    unfinished = is_unfinished(op.queue)
    return (unfinished or op.verb == 'convert') and 'lock' or nil
end

local function apply_op()
    if op.kind == 'm' then
        return 'mismatch', 'conversion'
    end
    local fields = run('HMGET', op.record, '.', 'used', op.lease)
    if fields.err then
        local held = run('GET', op.record)
        if type(held) ~= 'string' then
            return 'failed', {'HMGET', fields.err, op.record}
        elseif not op.kind and op.verb ~= 'set_limit' then
            return 'elsewhere', 0
        elseif held:sub(33, 33) ~= ':' then
            return 'failed', {'GET', 'WRONGTYPE this string is no record', op.record}
        end
        return 'mismatch', 'lock'
    end
    local head = fields[1] or ''
    local limit, words = head:match('^permits (%d+) ?(.*)$')
    body.permits = tonumber(limit)
    if limit then
        local set, span, ends = words:match('^(%d+) (%d+) (%d+)$')
        body.version, body.keep, body.until_ = tonumber(set), tonumber(span), tonumber(ends)
    elseif head:match('^access') then
        body.kind, body.permits, body.phase = 'y', $ACCESS_LIMIT, tonumber(head:match('^access (%d+)$'))
    elseif head:match('^latch %d+ %d+$') then
        return 'mismatch', 'latch'
    elseif head ~= '' or must('EXISTS', op.record) == 1 then
        return 'failed', {'HMGET', 'WRONGTYPE this hash is no record', op.record}
    elseif not op.kind and op.verb ~= 'set_limit' then
        return 'elsewhere', 0
    else
        -- A free name, unless a lease waits for it as a mutex.
        local waiter = run('LINDEX', op.queue, 0)
        if type(waiter) == 'string' and not waiter:find('^%S+ %d+ %d+[xy]') then
            local use = use_of_mutex()
            if use then
                return 'mismatch', use
            end
        end
        body.kind, body.permits = op.kind or 'x', op.permits
    end
    local sum, ends = (fields[2] or ''):match('^(%d+) ?(%d*)$')
    body.used, body.earliest = tonumber(sum), tonumber(ends)
    local done, outcome, value = pcall(apply, fields[3])
    -- A failure from here on does not change the result.
    if body.used and outcome ~= 'elsewhere' then
        pcall(serve, (op.verb == 'acquire' or op.verb == 'queue') and op.lease)
    end
    if body.used == 0 and not (body.version and now < body.until_) and run('EXISTS', op.queue) == 0 then
        run('DEL', op.record)
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
    local space = words:find(' ', 1, true)
    local record, verb = keys[i], space and words:sub(1, space - 1) or words
    op = {
        record = record, counter = keys[i + 1] or record .. ':token', queue = keys[i + 2] or record .. ':queue',
        verb = verb == 'propose' and 'acquire' or verb, lease = argv[at + 1],
        ttl = argv[at + 2], note = argv[at + 3], text = argv[at + 4], tokens = '1', count = verb ~= 'renew' and '1' or nil,
        rest = verb == 'release_after' and argv[at + 2] or verb == 'complete' and argv[at + 5] or '',
    }
    body = {kind = 'x', owes_next = false, exhausted = false, joined_first = false}
    at = at + (SIZES[verb] or 3)
    unfinished, written = false, false
    local done, outcome, value = true, 'elsewhere', 0
    if results[place + 1] then
        outcome, value = results[place + 1], results[place + 2]
    elseif not elsewhere[record] then
        read_op(space and words:sub(space + 1) or '')
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
