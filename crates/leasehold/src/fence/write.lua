-- Writes a value unless a later holder has written it already. For Redis 2.6 or later.
--
-- KEYS[1]  the value, a string
-- KEYS[2]  its fence: the largest token that has written it, in decimal
-- ARGV[1]  the fencing token, in decimal
-- ARGV[2]  the new value
--
-- Returns 1 if the value was written, else the fence as a string: the caller is late and must stop.
-- Both keys must be in one slot of a cluster. The fence must live as long as the value: it has no
-- ttl, and must not be evicted.

if not string.find(ARGV[1], '^[1-9]%d*$') or tonumber(ARGV[1]) >= 2 ^ 53 then
  return redis.error_reply('ERR the fencing token is no number from 1 to 2^53 - 1')
end
local newest = redis.call('GET', KEYS[2])
if newest then
  if not tonumber(newest) then
    return redis.error_reply('ERR the fence holds something else than a token')
  end
  if tonumber(newest) > tonumber(ARGV[1]) then
    return newest
  end
end
-- The fence first: if the server stops between the two writes, a late holder is still refused.
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1
