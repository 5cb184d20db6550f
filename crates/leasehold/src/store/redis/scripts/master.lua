-- Inspects and admits one of many masters, by crates/leasehold-core/src/quorum/admission.rs and master.rs.
--
-- A run is identified by the replication id of a master. The server draws a new one when its process starts,
-- and when it has been a replica, whose data came from another server. (It also does so when its first replica
-- connects, and when it frees its backlog without replicas. Nothing is forgotten then, but no other field
-- shows that.) The run id of the process is not enough: replaced data may contain a record that names it.
--
-- KEYS: the admission record, a hash: `run` is the run for which it is admitted, `floor` the token up to
--       which it issues none, `high` the largest token that it knows; while it is not admitted,
--       `candidate` is the inspected run, and `since` the time of its first inspection, by this server's
--       clock.
-- ARGV: nothing, to inspect; or the candidate to admit, its `since`, and the floor. A candidate that has
--       lost its data or was restarted since is not admitted.
--
-- Returns {run, uptime in seconds, time in microseconds, run for which it is admitted or '', high or '',
-- since or ''}, all as text; or {command, error}.

local record = KEYS[1]
local server, info, time = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication'), redis.pcall('TIME')
if type(server) == 'table' or type(info) == 'table' then
    return {'INFO', server.err or info.err}
elseif time.err then
    return {'TIME', time.err}
elseif not string.find(info, 'role:master', 1, true) then
    return {'INFO', 'READONLY the server is a replica'}
end
local run, uptime = string.match(info, 'master_replid:(%x+)'), string.match(server, 'uptime_in_seconds:(%d+)')
local now = string.format('%.0f', time[1] * 1000000 + time[2])

local kept = redis.pcall('HMGET', record, 'run', 'floor', 'high', 'candidate', 'since')
if kept.err then
    return {'HMGET', kept.err}
end
local admitted, high, since = kept[1] or '', tonumber(kept[3] or 0), kept[5] or ''
local reply

if admitted == run then
    since = ''
elseif kept[4] ~= run or since == '' then
    reply = redis.pcall('HSET', record, 'candidate', run, 'since', now)
    if type(reply) == 'table' then
        return {'HSET', reply.err}
    end
    since = now
elseif ARGV[1] == run and ARGV[2] == since then
    local floor = string.format('%.0f',
        math.max(tonumber(ARGV[3]), high, tonumber(kept[2] or 0)))
    reply = redis.pcall('HSET', record, 'floor', floor, 'high', floor, 'run', run)
    if type(reply) == 'table' then
        return {'HSET', reply.err}
    end
    redis.pcall('HDEL', record, 'candidate', 'since')
    admitted = run
end
return {run or '', uptime or '0', now, admitted, kept[3] or '', since}
