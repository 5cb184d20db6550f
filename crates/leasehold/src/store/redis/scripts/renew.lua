-- RenewScript as they nearly always are: each lease holds its record, and the ttl grows. That is the
-- rule of mutex.lua for them, at a third of its cost; see there for the records. What is not so
-- simple is left as it is and answered with its place, and has to be asked of mutex.lua.
--
-- KEYS: for each renewal its record.
-- ARGV: the ttl in ms, then for each renewal its lease.
--
-- Answers with a flat list: the server's time in microseconds, then the places, from 1, of those that
-- were not renewed. Or with {command, error}, if the server refuses TIME or does not know GT, which
-- servers before 7.0 do not.

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
