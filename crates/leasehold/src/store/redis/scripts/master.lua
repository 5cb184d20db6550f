-- One of many masters: its mark, and how it is armed. By crates/leasehold-core/src/quorum/master.rs.
--
-- KEYS: the mark, a hash: `run` is the run of the process for which it is armed, `floor` the token up to
--       which it gives out none, `high` the largest that it knows; as long as it is not armed,
--       `candidate` is the run that somebody has seen, and `since` when that was by this server's clock.
-- ARGV: nothing, to look; or the run and the floor to arm it with.
--
-- Answers {run, seconds that it runs, time in microseconds, run for which it is armed or '', high or
-- '', since or ''}, all as text; or {command, error}.

local mark = KEYS[1]
local info, time = redis.pcall('INFO', 'server'), redis.pcall('TIME')
if type(info) == 'table' then
    return {'INFO', info.err}
elseif time.err then
    return {'TIME', time.err}
end
local run, up = string.match(info, 'run_id:(%x+)'), string.match(info, 'uptime_in_seconds:(%d+)')
local now = string.format('%.0f', time[1] * 1000000 + time[2])

local kept = redis.pcall('HMGET', mark, 'run', 'floor', 'high', 'candidate', 'since')
if kept.err then
    return {'HMGET', kept.err}
end
local armed, high, since = kept[1] or '', tonumber(kept[3] or 0), kept[5] or ''
local reply

if ARGV[1] and ARGV[1] == run and armed ~= run then
    local floor = string.format('%.0f',
        math.max(tonumber(ARGV[2]), high, tonumber(kept[2] or 0)))
    reply = redis.pcall('HSET', mark, 'floor', floor, 'high', floor, 'run', run)
    if type(reply) == 'table' then
        return {'HSET', reply.err}
    end
    redis.pcall('HDEL', mark, 'candidate', 'since')
    armed = run
elseif armed ~= run and kept[4] ~= run then
    reply = redis.pcall('HSET', mark, 'candidate', run, 'since', now)
    if type(reply) == 'table' then
        return {'HSET', reply.err}
    end
    since = now
end
return {run or '', up or '0', now, armed, kept[3] or '', since}
