-- Renewals of semaphores and read-write locks in their usual form: each lease holds, and no other one has ended or can be
-- granted. Applies the rule of shares.lua at a part of its cost; the records are described there. Any other renewal is left
-- unchanged, and its number is returned: shares.lua applies it.
--
-- The keys, the arguments and the reply are those of renew.lua.

local run, keys, argv = redis.pcall, KEYS, ARGV
local match, format, tonumber = string.match, string.format, tonumber

local time = run('TIME')
if time.err then
    return {'TIME', time.err}
end
local now = time[1] * 1000000 + time[2]
local results, ends, millis = {now}, now + argv[1] * 1000, argv[1] + 1

-- Whether a renewal is all that is to be done, and the row that it stores, if it does.
local function renewed(key, lease)
    local fields = run('HMGET', key, '.', 'used', lease)
    if fields.err or not (fields[1] and fields[2] and fields[3]) then
        return false
    end
    -- With a set limit, the renewal keeps that, too.
    local limit, earliest = match(fields[1], '^permits (%d+)$'), tonumber(match(fields[2], ' (%d+)$'))
    if not limit and not match(fields[1], '^access') or not earliest or now >= earliest then
        return false
    end
    local used, share, last, rest = tonumber(match(fields[2], '^%d+')), match(fields[3], '^(%S+ [1-9]%d* %d+) (%d+)(.*)$')
    -- In a slot that is being migrated, a missing queue is an error.
    if not last or now >= tonumber(last) or used < tonumber(limit or $ACCESS_LIMIT) and run('EXISTS', key .. ':queue') == 1 then
        return false
    end
    -- The expiry comes first: then its refusal changes nothing, and a full memory refuses no renewal.
    local left = run('PTTL', key)
    if type(left) == 'table' or type(run('PEXPIRE', key, left > millis and left or millis)) == 'table' then
        return false
    end
    return ends <= tonumber(last)
        or type(run('HSET', key, lease, format('%s %.0f%s', share, ends, rest))) ~= 'table'
end

local i = 0
for lease in string.gmatch(argv[2], '[^ ]+') do
    i = i + 1
    if not renewed(keys[i], lease) then
        results[#results + 1] = i
    end
end
return results
