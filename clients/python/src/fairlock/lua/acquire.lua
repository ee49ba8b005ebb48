-- FAIRLOCK.ACQUIRE as a script: takes a fair lock, or joins its queue.
--
--   EVALSHA <sha1> 4 <lock> <queue> <deadlines> <token>
--       owner <NOWAIT | ENQUEUE> [LEASE ms] [PATIENCE ms] [ONCE]
--
-- Replies the fencing token once the owner holds the lock. Otherwise NOWAIT replies nil, and ENQUEUE
-- [position, retry-after]: the owner's place in the queue (1 is the head), and the milliseconds after which
-- it asks again unless it is woken before.
--
-- Promises: one holder at a time; waiters that ask in time are served in the order in which they joined; each
-- acquisition's token is greater than the one before; an error has changed nothing. Only the server's clock
-- counts. Nothing is walked but dead heads and, once in a turn, the 16 waiters behind a silent one; where a
-- waiter that asks again stands in the queue, LPOS finds.

local TURN = 5000 -- milliseconds that the head has to take a lock that is free
local WOKEN_BEHIND = 16 -- waiters that may be dead with a head that is silent
local REDISSONS_PATIENCE = 300000 -- milliseconds
local LONGEST = 4503599627370496 -- milliseconds, for LEASE and PATIENCE
local MOST_WAITERS = 100000
local DAY = '86400000' -- milliseconds
local FARTHEST = 315360000000000 -- microseconds: no clock is set back by more than ten years

local lock, queue, deadlines, last_token = unpack(KEYS)
local owner = ARGV[1] or ''

-- A number for a command. Redis 7.2.0 to 7.2.4 would write some with an exponent, such as 1e+8.
local function digits(number)
  return string.format('%.0f', number)
end

-- 1. The arguments.

local OPTIONS = {
  NOWAIT = 'word', ENQUEUE = 'word', ONCE = 'word', LEASE = 'time', PATIENCE = 'time',
  WAIT = 'module', SESSION = 'module', SHARED = 'module',
}

-- Whether a text is a whole number from 1 to 9223372036854775807.
local function is_whole(text)
  return string.find(text, '^[1-9]%d*$') and (#text < 19 or #text == 19 and text <= '9223372036854775807')
end

local given, index = {}, 2
while ARGV[index] do
  local name = string.upper(ARGV[index])
  local value = true
  if OPTIONS[name] == 'time' then
    index = index + 1
    value = is_whole(ARGV[index] or '') and tonumber(ARGV[index])
    if not value or value > LONGEST then
      return redis.error_reply('ERR ' .. name .. ' is not a whole number of milliseconds from 1 to 4503599627370496')
    end
  elseif OPTIONS[name] == 'module' then
    return redis.error_reply('ERR ' .. name .. ' needs the fairlock module: no script can do it')
  elseif not OPTIONS[name] then
    return redis.error_reply('ERR syntax error: unknown option, expected LEASE, NOWAIT, ENQUEUE, PATIENCE or ONCE')
  end
  if given[name] then
    return redis.error_reply('ERR syntax error: ' .. name .. ' is given twice')
  end
  given[name] = value
  index = index + 1
end

if #owner < 1 or #owner > 256 then
  return redis.error_reply('ERR owner is not 1 to 256 bytes long')
elseif owner == '*' then
  return redis.error_reply("ERR owner '*' is the identity of a connection and cannot be used in a script")
elseif given.NOWAIT and given.ENQUEUE then
  return redis.error_reply('ERR syntax error: only one of WAIT, NOWAIT and ENQUEUE can be given')
elseif not given.NOWAIT and not given.ENQUEUE then
  return redis.error_reply('ERR to block in the server needs the fairlock module: say NOWAIT or ENQUEUE')
end
local lease, patience = given.LEASE or 30000, given.PATIENCE or 300000

-- 2. The lock as it is. All is read before anything is written: a key of another type is an error.

-- A write that changes nothing. A server that may not write, or whose memory is full, refuses here.
local refusal = redis.pcall('SETRANGE', last_token, 0, '')
if type(refusal) == 'table' then
  -- Before Redis 7.0 the place in the script comes before the error's code.
  return redis.error_reply((string.gsub(refusal.err, '^@user_script: %d+: %-', '')))
end

local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(micros / 1000)
local owners = redis.call('HLEN', lock) - redis.call('HEXISTS', lock, '') -- the token's field has no name
local holds = redis.call('HGET', lock, owner)
local lease_left = redis.call('PTTL', lock)
local head = redis.call('LINDEX', queue, 0)
local is_waiting = redis.call('ZSCORE', deadlines, owner)

-- A lock has one owner with its hold count, and perhaps a token. Any other hash is another program's data, unless the
-- module has been loaded since and keeps a list of the owners that share the lock.
local function is_lock()
  if owners > 1 and not holds then
    return redis.pcall('EXISTS', (string.gsub(queue, '^redisson_lock_queue', 'redisson_lock_shared'))) == 1
  end
  for _, value in ipairs(owners == 1 and redis.call('HVALS', lock) or { '' }) do
    if not is_whole(value) then
      return false
    end
  end
  return true
end

if owners > 0 and (holds or not head) and not is_lock() then
  return redis.error_reply('NOTALOCK the key holds a hash that is no lock: it is left as it is')
end

-- The time in microseconds, or one more than the last token if that is ahead of the clock.
local function next_token()
  local last = tonumber(redis.call('GET', last_token)) or 0
  local token = last >= micros and last < micros + FARTHEST and last + 1 or micros
  redis.call('SET', last_token, digits(token), 'PX', DAY)
  redis.call('HSET', lock, '', digits(token))
  return token
end

-- 3. The holder asks again.

if holds then
  if not given.ONCE then
    redis.call('HINCRBY', lock, owner, 1)
  end
  if given.LEASE or lease_left >= 0 and lease_left < lease then
    redis.call('PEXPIRE', lock, digits(lease))
  end
  -- A holder that took the lock by another script may have no token.
  return tonumber(redis.call('HGET', lock, '')) or next_token()
end

-- 4. The lock is free: it is the head's turn. A head whose deadline has passed is dead, and is dropped.

local function wake(waiter)
  local channel = string.gsub(queue, '^redisson_lock_queue', 'redisson_lock__channel') .. ':' .. waiter
  local about = redis.pcall('INFO', 'cluster')
  local in_cluster = type(about) == 'string' and string.find(about, 'cluster_enabled:1', 1, true)
  -- Redis has SPUBLISH since 7.0.
  if not in_cluster or type(redis.pcall('SPUBLISH', channel, '0')) == 'table' then
    redis.call('PUBLISH', channel, '0')
  end
end

local function deadline_of(waiter)
  return tonumber(redis.call('ZSCORE', deadlines, waiter)) or 0
end

local function living_head()
  local first = redis.call('LINDEX', queue, 0)
  local deadline = first and deadline_of(first)
  if not first or first == owner or deadline > now then
    return first, deadline
  end
  redis.call('LPOP', queue)
  redis.call('ZREM', deadlines, first)
  return living_head()
end

local until_free = lease_left
if owners == 0 then
  local living, deadline = living_head()
  if not living or living == owner then
    redis.call('HSET', lock, owner, 1)
    redis.call('PEXPIRE', lock, digits(lease))
    if living then
      redis.call('LPOP', queue)
      redis.call('ZREM', deadlines, owner)
    end
    return next_token()
  end
  local begins = living ~= head or deadline > now + TURN
  until_free = math.min(deadline - now, TURN)
  if begins then
    redis.call('ZADD', deadlines, digits(now + until_free), living)
    wake(living)
  end
  -- A head that has been silent for a tenth of its turn may be dead, and others behind it, too. These are woken, and have
  -- until the end of the same turn to ask, a second at least: a row of dead waiters costs one turn. Half a
  -- millisecond marks that this was done.
  if deadline % 1 == 0 and until_free > 0.2 * TURN then
    if begins or until_free >= 0.9 * TURN then
      until_free = until_free / 2 -- Then it is time for that, and no other waiter may be left to ask.
    else
      redis.call('ZADD', deadlines, string.format('%.1f', deadline + 0.5), living)
      for _, waiter in ipairs(redis.call('LRANGE', queue, 1, WOKEN_BEHIND)) do
        if string.find(waiter, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') then
          break -- Redisson's scripts leave its deadline as it is when it asks again: it would lose its place
        end
        if waiter ~= owner then
          redis.call('ZADD', deadlines, digits(math.min(deadline_of(waiter), deadline)), waiter)
          wake(waiter)
        end
      end
    end
  end
end

-- 5. The owner has to wait.

if given.NOWAIT then
  return false
end

local position = head == owner and 1 or is_waiting and (redis.call('LPOS', queue, owner) or -1) + 1 or 0
if position == 0 then
  if redis.call('LLEN', queue) >= MOST_WAITERS then
    return redis.error_reply('QUEUEFULL the lock has ' .. MOST_WAITERS .. ' waiters')
  end
  position = redis.call('RPUSH', queue, owner)
end

-- The owner has its patience to ask again. Redisson's scripts lower all deadlines by a Redisson client's patience for
-- each waiter that they serve, so it gets as much for each that is ahead.
local ahead = (position - 1) * math.max(patience, REDISSONS_PATIENCE)
redis.call('ZADD', deadlines, digits(now + patience + ahead), owner)

local half = math.floor(patience / 2)
return { position, math.max(1, until_free < 0 and half or math.min(until_free, half)) }
