-- FAIRLOCK.RELEASE as a script: gives up one hold of a fair lock, or all of them.
--
--   EVALSHA <sha1> 4 <lock> <queue> <deadlines> <token> owner [TOKEN token] [ALL]
--
-- Replies the holds that remain. 0 means that the lock is free, and that the head of its queue has been woken.
-- NOTHELD, and no change, if the owner does not hold the lock, or holds it by another token.

local TURN = 5000 -- milliseconds that the head has to take a lock that is free

local lock, queue, deadlines = unpack(KEYS)
local owner = ARGV[1] or ''

-- 1. The arguments.

-- Whether a text is a whole number from 1 to 9223372036854775807.
local function is_whole(text)
  return string.find(text, '^[1-9]%d*$') and (#text < 19 or #text == 19 and text <= '9223372036854775807')
end

local all, token
local index = 2
while ARGV[index] do
  local name = string.upper(ARGV[index])
  if name == 'ALL' and not all then
    all = true
  elseif name == 'TOKEN' and not token then
    index = index + 1
    token = ARGV[index] or ''
    if not is_whole(token) then
      return redis.error_reply('ERR TOKEN is not a whole number from 1 to 9223372036854775807')
    end
  else
    return redis.error_reply('ERR syntax error: expected TOKEN or ALL, each once')
  end
  index = index + 1
end
if #owner < 1 or #owner > 256 then
  return redis.error_reply('ERR owner is not 1 to 256 bytes long')
elseif owner == '*' then
  return redis.error_reply("ERR owner '*' is the identity of a connection and cannot be used in a script")
end

-- 2. The lock as it is. All is read before anything is written: a key of another type is an error.

-- A write that changes nothing: no owner is empty. A server that may not write refuses here. After it, full
-- memory refuses nothing.
local refusal = redis.pcall('ZREM', deadlines, '')
if type(refusal) == 'table' then
  -- Before Redis 7.0 the place in the script comes before the error's code.
  return redis.error_reply((string.gsub(refusal.err, '^@user_script: %d+: %-', '')))
end

local owners = redis.call('HLEN', lock) - redis.call('HEXISTS', lock, '') -- the token's field has no name
local holds = redis.call('HGET', lock, owner)
redis.call('LLEN', queue)

-- A lock has one owner with its hold count, and perhaps a token. Any other hash is another program's data.
local function is_lock()
  for _, value in ipairs(owners == 1 and redis.call('HVALS', lock) or { '' }) do
    if not is_whole(value) then
      return false
    end
  end
  return true
end

if owners > 0 and not is_lock() then
  return redis.error_reply('NOTALOCK the key holds a hash that is no lock: it is left as it is')
elseif not holds then
  return redis.error_reply('NOTHELD the owner does not hold the lock')
elseif token and redis.call('HGET', lock, '') ~= token then
  return redis.error_reply('NOTHELD the owner holds the lock by another token')
elseif not all and holds ~= '1' then
  return redis.call('HINCRBY', lock, owner, -1)
end

-- 3. It is the head's turn. A head whose deadline has passed is dead, and is dropped.

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
-- At last, since a user who may not publish gets an error before.
redis.call('DEL', lock)
return 0
