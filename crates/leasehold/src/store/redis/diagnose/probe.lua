-- Tries the commands that a user needs, on keys that do not exist. Leaves nothing behind.
--
-- KEYS[1]  a record, KEYS[2] its queue; neither exists
-- ARGV[1]  a channel without subscribers
--
-- Returns pairs of a command and its error.

local failed = {}

local function try_as(name, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    failed[#failed + 1] = name
    failed[#failed + 1] = reply.err
    return false
  end
  return true
end

local function try(command, ...)
  return try_as(command, command, ...)
end

local record, queue = KEYS[1], KEYS[2]
try('TIME')
try('MGET', record)
try('PTTL', record)
try('GET', record)
try('SET', record, '1', 'XX')
try('LINDEX', queue, 0)
try('HGET', queue, 'f')
try('HMGET', queue, 'f')
try('HEXISTS', queue, 'f')
try('HDEL', queue, 'f')
try('HGETALL', queue)
try('LRANGE', queue, 0, 0)
try('LLEN', queue)
try('LPOS', queue, 'x')
try('LREM', queue, 0, 'x')
try('LTRIM', queue, 1, 0)
try('EXISTS', record)
try('PEXPIRE', record, 1)
try('PEXPIREAT', record, 1)
-- Only what can be removed is written.
if try('DEL', record) and try('SET', record, '1') then
  -- The record is neither a list nor a hash; the server checks the permission first.
  try('RPUSH', record, 'x')
  try('LPUSH', record, 'x')
  try('HSET', record, 'f', '1')
  redis.call('DEL', record)
end
try('PUBLISH', ARGV[1], '')
try_as('PUBSUB|NUMSUB', 'PUBSUB', 'NUMSUB', ARGV[1])
return failed
