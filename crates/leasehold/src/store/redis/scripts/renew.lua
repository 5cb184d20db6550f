-- Renewals in their usual form: each lease holds its record, and the ttl grows. Applies the rule of mutex.lua
-- at a third of its cost; the records are described there. Any other renewal is left unchanged, and its
-- number is returned: mutex.lua applies it.
--
-- KEYS: for each renewal its record.
-- ARGV: the ttl in ms, then for each renewal its lease.
--
-- Returns a flat list: the server's time in microseconds, then the numbers, from 1, of the renewals that were
-- not applied; or {command, error}, if the server refuses TIME or does not know GT, which is new in 7.0.

local run = redis.pcall

local time = run('TIME')
if time.err then
    return {'TIME', time.err}
end

local answer, ttl = {time[1] * 1000000 + time[2]}, ARGV[1]
for i, record in ipairs(KEYS) do
    local renewed = 0
    if run('HEXISTS', record, ARGV[i + 1]) == 1 then
        renewed = run('PEXPIRE', record, ttl, 'GT')
        if type(renewed) == 'table' and i == 1 then
            return {'PEXPIRE', renewed.err}
        end
    end
    if renewed ~= 1 then
        answer[#answer + 1] = i
    end
end
return answer
