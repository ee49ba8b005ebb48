-- FAIRLOCK.RENEW as a script: starts the lease of the holder of a fair lock anew.
--
--   EVALSHA <sha1> 4 <lock> <queue> <deadlines> <token> owner [LEASE ms]
--
-- Replies the lease now set, in milliseconds. NOTHELD, and no change, if the owner does not hold the lock.

local LONGEST = 4503599627370496 -- milliseconds

local lock, queue, deadlines = unpack(KEYS)
local owner, option, lease = ARGV[1] or '', ARGV[2], ARGV[3] or '30000'

-- Whether a text is a whole number from 1 to 9223372036854775807.
local function is_whole(text)
  return string.find(text, '^[1-9]%d*$') and (#text < 19 or #text == 19 and text <= '9223372036854775807')
end

if option and (string.upper(option) ~= 'LEASE' or not ARGV[3] or ARGV[4]) then
  return redis.error_reply('ERR syntax error: expected LEASE and its value, once')
elseif not is_whole(lease) or tonumber(lease) > LONGEST then
  return redis.error_reply('ERR LEASE is not a whole number of milliseconds from 1 to 4503599627370496')
elseif #owner < 1 or #owner > 256 then
  return redis.error_reply('ERR owner is not 1 to 256 bytes long')
elseif owner == '*' then
  return redis.error_reply("ERR owner '*' is the identity of a connection and cannot be used in a script")
end

-- A write that changes nothing: no owner is empty. A server that may not write refuses here.
local refusal = redis.pcall('ZREM', deadlines, '')
if type(refusal) == 'table' then
  -- Before Redis 7.0 the place in the script comes before the error's code.
  return redis.error_reply((string.gsub(refusal.err, '^@user_script: %d+: %-', '')))
end

local owners = redis.call('HLEN', lock) - redis.call('HEXISTS', lock, '') -- the token's field has no name
local holds = redis.call('HGET', lock, owner)
redis.call('LLEN', queue) -- a key of another type is an error

-- A lock has one owner with its hold count, and perhaps a token. Any other hash is another program's data.
for _, value in ipairs(owners == 1 and redis.call('HVALS', lock) or owners > 1 and { '' } or {}) do
  if not is_whole(value) then
    return redis.error_reply('NOTALOCK the key holds a hash that is no lock: it is left as it is')
  end
end
if not holds then
  return redis.error_reply('NOTHELD the owner does not hold the lock')
end
redis.call('PEXPIRE', lock, lease)
return tonumber(lease)
