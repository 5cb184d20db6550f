-- Stores the description of a client in a hash that expires: <namespace>:client:<client id>.
--
-- KEYS: the hash. ARGV: its ttl in ms, then fields and values.
-- Returns 1, or {command, error} if the server refused a command.

local reply
-- Also before the hash exists: a user without this permission leaves no hash without an expiry.
reply = redis.pcall('PEXPIRE', KEYS[1], ARGV[1])
if type(reply) == 'table' then
    return {'PEXPIRE', reply.err}
end
reply = redis.pcall('HSET', KEYS[1], unpack(ARGV, 2))
if type(reply) == 'table' then
    return {'HSET', reply.err}
end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
