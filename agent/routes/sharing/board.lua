-- One agent's report about one route, and the shared state in return. See board.py for the rules.
-- All times are by Redis's own clock.
--
-- KEYS   1 state         hash: generation, stopped 0|1, parked 0|1, reason, retry_at (ms)
--        2 turn          string: the agent that may probe; it expires
--        3 seen          hash: agent -> "ms of its last report, ms of its last outcomes, ok, bad"
--
-- ARGV   1 agent
--        2 ok            outcomes since its last report
--        3 failed
--        4 generation    the newest that it knows
--        5 stance        goes, stopped, joined, well
--        6 parked        0|1: about the agent's own stop, as the next two
--        7 reason
--        8 retry_ms      until its next probe
--        9 turn          none, want, keep, leave
--       10 interval_ms   from one probe to the next
--       11 turn_ms       how long a turn lives
--       12 fresh_ms      older outcomes of other agents say nothing about the present
--       13 keep_s        how long the keys live
--
-- result 1 generation
--        2 stopped       0|1
--        3 parked        0|1
--        4 reason
--        5 retry_ms      until the next probe by any agent
--        6 turn          0|1: whether this agent has the turn

local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local agent, ok, failed = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local known, stance = tonumber(ARGV[4]), ARGV[5]
local fresh = tonumber(ARGV[12])

local outcomes = string.match(redis.call('HGET', KEYS[3], agent) or '', '^%d+ (.*)$') or '0 0 0'
if ok + failed > 0 then outcomes = string.format('%.0f %d %d', now, ok, failed) end
redis.call('HSET', KEYS[3], agent, string.format('%.0f ', now) .. outcomes)

local state = redis.call('HMGET', KEYS[1], 'generation', 'stopped', 'parked', 'reason', 'retry_at')
local generation, stopped = tonumber(state[1] or 0), state[2] == '1'
local parked, reason, retry_at = state[3] or '0', state[4] or '', tonumber(state[5] or 0)
local changed = false

local function stop()
  stopped, parked, reason, retry_at, changed = true, ARGV[6], ARGV[7], now + tonumber(ARGV[8]), true
end

-- Whether the other agents that reported just now bear a stop out: there are none, or at least half
-- of their outcomes failed.
local function borne_out()
  local others, good, bad = false, 0, 0
  local seen = redis.call('HGETALL', KEYS[3])
  for i = 1, #seen, 2 do
    local at, at_outcomes, its_ok, its_failed =
      string.match(seen[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    if now - at > 20 * fresh then
      redis.call('HDEL', KEYS[3], seen[i])
    elseif seen[i] ~= agent and now - at <= fresh then
      others = true
      if now - at_outcomes <= fresh then good, bad = good + its_ok, bad + its_failed end
    end
  end
  return not others or (bad > 0 and bad >= good)
end

if known > generation then  -- Redis has lost its memory; the agent's knowledge holds
  generation, stopped, changed = known, false, true
  if stance == 'joined' then stop() end
end
if stance == 'well' and stopped and known == generation then
  generation, stopped, parked, reason, changed = generation + 1, false, '0', '', true
  redis.call('DEL', KEYS[2])
elseif stance == 'stopped' and not stopped and borne_out() then
  generation = generation + 1
  stop()
end
-- The clock may have been set back, and anybody may have written the keys. So no wait and no turn
-- is longer than the agents' own.
local latest = now + math.max(tonumber(ARGV[8]), tonumber(ARGV[10]))
if stopped and not (retry_at <= latest) then retry_at, changed = latest, true end
local left_ms = redis.call('PTTL', KEYS[2])
if left_ms == -1 or left_ms > tonumber(ARGV[11]) then redis.call('DEL', KEYS[2]) end

local mine = redis.call('GET', KEYS[2]) == agent
if mine and (ARGV[9] == 'leave' or not stopped) then
  redis.call('DEL', KEYS[2])
  mine = false
elseif mine and ARGV[9] ~= 'none' then
  redis.call('PEXPIRE', KEYS[2], ARGV[11])
elseif ARGV[9] == 'want' and stopped and now >= retry_at then
  mine = redis.call('SET', KEYS[2], agent, 'NX', 'PX', ARGV[11]) ~= false
  if mine then retry_at, changed = now + tonumber(ARGV[10]), true end
end

if changed then
  redis.call('HSET', KEYS[1], 'generation', generation, 'stopped', stopped and 1 or 0,
             'parked', parked, 'reason', reason, 'retry_at', string.format('%.0f', retry_at))
end
redis.call('EXPIRE', KEYS[1], ARGV[13])
redis.call('EXPIRE', KEYS[3], ARGV[13])
return {generation, stopped and 1 or 0, tonumber(parked), reason, math.max(0, retry_at - now),
        mine and 1 or 0}
