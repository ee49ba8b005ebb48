-- FAIRLOCK.INFO as a script: the state of a fair lock.
--
--   EVALSHA <sha1> 4 <lock> <queue> <deadlines> <token>
--
-- Replies names and values, as the command does in RESP2.

local lock, owner, holds, token = redis.call('HGETALL', KEYS[1]), false, 0, false
for at = 1, #lock, 2 do
  if lock[at] == '' then -- the token's field has no name
    token = tonumber(lock[at + 1])
  else
    owner, holds = lock[at], tonumber(lock[at + 1]) or 0
  end
end
local held = owner and 1 or 0
return {
  'owner', owner, 'holds', holds, 'lease', owner and redis.call('PTTL', KEYS[1]) or 0, 'token', token, 'session', 0,
  'waiting', redis.call('LLEN', KEYS[2]), 'next', redis.call('LINDEX', KEYS[2], 0), 'holders', held, 'limit', held,
}
