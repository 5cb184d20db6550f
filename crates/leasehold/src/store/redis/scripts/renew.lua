-- Renewals in their usual form: each lease holds its record, and the ttl grows. Applies the rule of
-- mutex.lua at a third of its cost; the records are described in plain.lua. Any other renewal is left unchanged, and its
-- number is returned: mutex.lua applies it.
--
-- KEYS: for each renewal its record.
-- ARGV: the ttl in ms, and the leases of all renewals, separated by spaces.
--
-- Returns a flat list: the server's time in microseconds, then the numbers, from 1, of the renewals that were
-- not applied; or {command, error}, if the server refuses TIME, MGET or PEXPIREAT, or does not know GT, which is new
-- in 7.0.

local run, keys, argv = redis.pcall, KEYS, ARGV

local time, records = run('TIME'), run('MGET', unpack(keys))
if time.err or records.err then
    return {time.err and 'TIME' or 'MGET', time.err or records.err}
end

local results = {time[1] * 1000000 + time[2]}
-- The server works with the instant: it would write PEXPIRE again as PEXPIREAT each time.
local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + argv[1])
-- Usually each lease holds its record without a hold count. One comparison shows that; a missing record is not a
-- string, and no lease contains a space.
local _, joined = pcall(table.concat, records, ' ')
local leases = joined ~= argv[2] and string.gmatch(argv[2], '[^ ]+')
for i = 1, #keys do
    local renewed, record, lease = 0, records[i], leases and leases()
    if not leases or record == lease or record and string.find(record, lease .. ' ', 1, true) == 1
        and record ~= lease .. ' 0' then
        renewed = run('PEXPIREAT', keys[i], ends, 'GT')
        if type(renewed) == 'table' and i == 1 then
            return {'PEXPIREAT', renewed.err}
        end
    end
    if renewed ~= 1 then
        results[#results + 1] = i
    end
end
return results
