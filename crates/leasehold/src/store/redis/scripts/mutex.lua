-- Mutexes: see plain.lua, which is before this text.

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

-- Grants a free record to the first live waiter, unless that is the requester, whose reply is its grant. Returns
-- whether the queue has a head afterwards, and the time left of the record. `entry` is that of the queue's head, if it was
-- read since the queue has changed.
--
-- The counter is written first and the queue last, so a failure removes only dead waiters from the queue.
local function pass_on(record, counter, queue, requester, entry)
    repeat
        local head = pass_over(record, queue, requester, entry)
        entry = nil
        if not head or head.is_own then
            return head ~= nil or unfinished, -2
        end
        local dropped, about = drop_needless(record, queue, head, '')
        if not dropped then
            local first, outcome = reserve(counter, head.tokens)
            if not first then
                -- The lock is granted to nobody: a request for fewer tokens does not overtake the waiter.
                error({outcome, 0})
            end
            local ttl = math.min(tonumber(head.ttl), $ACCEPTANCE_MS)
            write(record, head.lease, '1', ttl, -2, about and about:match('^%d+'))
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
            passed = passed + $PASS_MESSAGE
        end
    until passed >= $PASS_MAX
    unfinished = is_unfinished(queue)
    return unfinished, -2
end

-- Applies an operation to a mutex. `held` is its record, false if it is free; `rest` is the rest of a minimum hold, or
-- empty. The others are those parts of the operation that its verb has. Returns an outcome and a value.
local function apply_to_mutex(record, counter, queue, verb, lease, ttl, held, rest, note, text, tokens, count, first,
    ago, condition)
    -- The hold count if the lease holds the mutex, when its run was asked for, and whether it is in its minimum hold.
    local holds, since, is_reserved
    if held and (held:sub(33, 33) ~= ':' or lease == '' and not held:find('^%x+:%d')) then
        error({'failed', {'GET', 'WRONGTYPE this string is no record', record}})
    elseif held == lease then
        holds = '1'
    elseif held and held:find(lease, 1, true) == 1 and held:sub(#lease + 1, #lease + 1) == ' ' then
        holds, since = held:match('^(%d+) ?(%d*)$', #lease + 2)
        since = since ~= '' and since or nil
        is_reserved = holds == '0'
        holds = not is_reserved and holds
    end
    if holds and (verb == 'note' or verb == 'complete') then
        -- First, so that no release forgets its note.
        local outcome = notes().write(record, note, lease, text, ttl)
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
            outcome, value = 'revoked', held and held:match('^[^ ]+')
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
        local head = (left == -2 or condition) and run('LINDEX', queue, 0)
        -- The first request counts: a holder and a waiter keep its time.
        local met, last
        local asked = condition and not is_reserved and (holds and since or head and notes().asked_at(queue, lease))
        if asked and not holds then
            -- A waiter whose run is complete leaves before the others are served: none of them is behind it then.
            met, last = notes().decide(record, condition, asked)
            if met then
                leave(queue, lease)
                head = run('LINDEX', queue, 0)
            end
        end
        head = left == -2 and head
        if head then
            head, left = pass_on(record, counter, queue, lease, head)
            if asked and not notes().asked_at(queue, lease) then
                -- It cannot be notified, so it has lost its place.
                asked, met = nil, nil
            end
        end
        if condition and not is_reserved and met == nil then
            asked = asked or string.format('%.0f', math.max(now - ago, 0))
            met, last = notes().decide(record, condition, asked)
        end
        if not met or holds then
            if not holds and (left ~= -2 or unfinished) then
                left = left == -2 and 0 or left
                if verb ~= 'queue' or is_reserved then
                    return 'refused', left
                end
                local at, about = must('LPOS', queue, lease), asked and asked .. ' ' .. condition
                return 'refused', {left, join(queue, lease, at, ttl, tokens, about)}
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
        local is_done, _, ttl_of_head = pcall(pass_on, record, counter, queue, nil, head)
        left = is_done and ttl_of_head or left
    elseif head and verb == 'serve' and left > 0 then
        pcall(notify_next, record, queue, left)
    end
    if outcome then
        return outcome, value
    elseif verb == 'complete' and notes().was_applied(record, note, lease, text) then
        return 'released', 0
    end
    return 'lost', left == -2 and 0 or 1
end

local results, place, continued, elsewhere = {now}, 1, {}, {}
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
        local ago, condition
        local space = verb:find(' ', 1, true)
        if space then
            local numbers = verb:sub(space + 1)
            verb = verb:sub(1, space - 1)
            if verb == 'renew' then
                count = numbers
            elseif verb == 'set_token' then
                first, tokens = numbers:match('^(%d+) (%d+)$')
                first = tonumber(first)
            else
                tokens, count, numbers = numbers:match('^(%d+) (%d+) ?(.*)$')
                first = tonumber(numbers)
                ago, condition = numbers:match('^unless (%d+) (.*)$')
            end
        end
        local held, done = for_rule[i], nil
        if held == nil then
            held = run('GET', record)
        end
        if type(held) == 'table' and not elsewhere[record] then
            local status = run('HGET', record, '.')
            status = type(status) == 'string' and status or ''
            if status:match('^latch %d+ %d+$') then
                done, outcome, value = true, 'mismatch', 'latch'
            elseif status:match('^permits %d+') or status:match('^access') then
                elsewhere[record] = true
            else
                done, outcome, value = true, 'failed', {'GET', held.err, record}
            end
        end
        if elsewhere[record] then
            -- So that the operations on a record stay in order.
            done, outcome, value = true, 'elsewhere', 0
        elseif not outcome then
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
