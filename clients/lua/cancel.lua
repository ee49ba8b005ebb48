-- FAIRLOCK.CANCEL as a script: takes a waiter out of the queue of a fair lock.
--
--   EVALSHA <sha1> 4 <lock> <queue> <deadlines> <token> owner
--
-- Replies 1 if the owner was in the queue, and 0 if not. If it was the head and the lock is free, the next head
-- is woken.

local TURN = 5000 -- milliseconds that the head has to take a lock that is free

local lock, queue, deadlines = unpack(KEYS)
local owner = ARGV[1] or ''
if ARGV[2] then
  return redis.error_reply('ERR syntax error: expected no option')
elseif #owner < 1 or #owner > 256 then
  return redis.error_reply('ERR owner is not 1 to 256 bytes long')
elseif owner == '*' then
  return redis.error_reply("ERR owner '*' is the identity of a connection and cannot be used in a script")
end

-- A write that changes nothing: no owner is empty. A server that may not write refuses here. After it, full
-- memory refuses nothing.
local refusal = redis.pcall('ZREM', deadlines, '')
if type(refusal) == 'table' then
  -- Before Redis 7.0 the place in the script comes before the error's code.
  return redis.error_reply((string.gsub(refusal.err, '^@user_script: %d+: %-', '')))
end

-- All is read before anything is written: a key of another type is an error.
local is_free = redis.call('HLEN', lock) == redis.call('HEXISTS', lock, '') -- the token's field has no name
local was_head = redis.call('LINDEX', queue, 0) == owner
if not redis.call('ZSCORE', deadlines, owner) then
  return 0
end
local was_waiting = redis.call('LREM', queue, 1, owner)
redis.call('ZREM', deadlines, owner)
if not was_head or not is_free then
  return was_waiting
end

-- It is the next head's turn. A head whose deadline has passed is dead, and is dropped.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function wake(waiter)
  local channel = string.gsub(queue, '^redisson_lock_queue', 'redisson_lock__channel') .. ':' .. waiter
  local about = redis.pcall('INFO', 'cluster')
  local in_cluster = type(about) == 'string' and string.find(about, 'cluster_enabled:1', 1, true)
  -- Redis has SPUBLISH since 7.0.
  if not in_cluster or type(redis.pcall('SPUBLISH', channel, '0')) == 'table' then
    redis.call('PUBLISH', channel, '0')
  end
end

local function living_head()
  local head = redis.call('LINDEX', queue, 0)
  local deadline = head and tonumber(redis.call('ZSCORE', deadlines, head)) or 0
  if not head or deadline > now then
    return head, deadline
  end
  redis.call('LPOP', queue)
  redis.call('ZREM', deadlines, head)
  return living_head()
end

local head, deadline = living_head()
if head then
  if deadline > now + TURN then
    -- As text: Redis 7.2.0 to 7.2.4 would write some numbers with an exponent.
    redis.call('ZADD', deadlines, string.format('%.0f', now + TURN), head)
  end
  wake(head)
end
return was_waiting
