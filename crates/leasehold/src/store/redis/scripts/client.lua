-- Writes down who a client is, in a hash of its own that expires: <namespace>:client:<client id>.
--
-- KEYS: the hash. ARGV: its ttl in ms, then fields and values.
-- Answers 1, or {command, error} if the server refused a command.

local reply
-- Once before there is anything to expire: whoever may not do that leaves nothing behind.
reply = redis.pcall('PEXPIRE', KEYS[1], ARGV[1])
if type(reply) == 'table' then
    return {'PEXPIRE', reply.err}
end
reply = redis.pcall('HSET', KEYS[1], unpack(ARGV, 2))
if type(reply) == 'table' then
    return {'HSET', reply.err}
end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
