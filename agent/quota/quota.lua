-- One agent's request about one account, and what it is granted. The rules are explained in
-- tests/support, where lua_account.py, lua_minute.py and lua_spacing.py have the same for tests.
-- All times are by Redis's own clock.
--
-- KEYS   1 account       hash: at, clock, scale (the accepted share), cut, pause, day, used,
--                        bucket of each rate, the same with _unfilled (for how many ms),
--                        held and claim (sums of the two counts of key 2), recount, learn,
--                        began, strict (until when), minute (of each half second before
--                        minute_sums "slot requests tokens_in tokens_out;"), minute_sums
--                        ("slot own older", three numbers of each), keep (the call for which
--                        room is kept: "asked tokens_in tokens_out agent"), start (of the next
--                        call), even (until when calls begin one after another)
--        2 agents        hash: agent -> "sequence granted seats held entitled"
--        3 seen          sorted set: agent by the account's clock at its last request
--        4 hungry        the same, of the agents with waiting calls
--
-- ARGV   1 agent
--        2 sequence
--        3 running       calls
--        4 refund        requests, as the next two
--        5 tokens_in
--        6 tokens_out
--        7 refused       calls since the last answered request
--        8 retry_s       the longest Retry-After among them
--        9 remaining     lowest share of a limit that is left; -1 unknown
--       10 day           of the next
--       11 calls         of that day; -1 unknown
--       12 rpm           limits: 0 none, as the next five
--       13 tpm
--       14 itpm
--       15 otpm
--       16 rpd
--       17 in_flight
--       18 keep_s        how long the keys live
--       19 in_hand       grants that are not used
--       20 ends          calls that probably end before the next request
--       21 told_day      of the next
--       22 told          calls of that day by the last answer; -1 unknown
--       23 uncounted     calls that the agent granted itself while Redis was away
--       24 unrecorded    of them, those that 11 may leave out
--       25 and so on     tokens_in, tokens_out of each waiting call
--
-- result 1 granted       how many of the waiting calls, from the first
--        2 seats
--        3 paused_ms     a number as text, as the next
--        4 accepted      share of the limits
--        5 agents
--        6 binding       the limit that stopped the next call, or ''
--        7 day           of the next
--        8 calls         of that day
--        9 began         when this account's memory began, in ms
--       10 starts_in_ms  when the first granted call begins; a number as text, as the next
--       11 every_ms      between the starts of two calls

local USE, CAPACITY, REST, STEP = 0.995, 800, 500, 1000
local WAITING, AWAY, RECOUNT, GAP, LEARN = 1500, 6000, 5000, 2000, 1000
local CUT, CUT_EVERY, CALM, MIN_SHARE = 0.92, 2000, 3000, 0.1
local SEAT, ROUND = 20000, 60000
local GROWTH, FAST_GROWTH, MAX_WAIT_S = 0.01, 0.04, 5
local SLOT, SLOTS, STRICT_SLOTS, REFUND_SLOTS = 500, 120, 122, 4
local LEAD = 800
local SMALL, TOO_FULL, STRICT, KEPT = 0.02, 1.005, 3600000, 1500

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local agent, sequence, running = ARGV[1], ARGV[2], tonumber(ARGV[3])
local refused, remaining = tonumber(ARGV[7]), tonumber(ARGV[9])
local in_hand, ends = tonumber(ARGV[19]), tonumber(ARGV[20])
local waiting = math.floor((#ARGV - 24) / 2)

-- A key may be missing because Redis evicted it. The others are of no use then: seats would leak.
-- An account has its first three keys after each request.
for part = 1, 3 do
  if redis.call('EXPIRE', KEYS[part], ARGV[18]) == 0 then
    for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, -1) end  -- deletes it
  end
end

local state = redis.call('HMGET', KEYS[1], 'at', 'clock', 'scale', 'cut', 'pause', 'day', 'used',
                         'held', 'claim', 'recount', 'rpm', 'tpm', 'itpm', 'otpm', 'learn',
                         'strict', 'minute_sums', 'keep', 'began', 'start', 'rpm_unfilled',
                         'tpm_unfilled', 'itpm_unfilled', 'otpm_unfilled', 'even')
local function number(index, default)
  local value = tonumber(state[index] or nil)
  return value == value and value or default  -- nan is not equal to itself
end
local past = math.max(0, now - number(1, now))
local clock = number(2, 0) + math.min(past, STEP)
local began = number(19, now)
local accepted, cut, pause = number(3, 1), number(4, -CALM), number(5, 0)
local day, used = number(6, -1), number(7, 0)
local held, entitled, recount = number(8, 0), number(9, 0), number(10, 0)
-- Anybody may have written the keys. So nothing lasts longer than the agents would let it.
if not (accepted >= MIN_SHARE and accepted <= 1) then accepted = 1 end
cut, pause = math.min(cut, clock), math.min(pause, clock + 500 * MAX_WAIT_S)
recount = math.min(recount, clock)
local learn = math.min(number(15, 0), clock + LEARN)
if not state[1] or past > GAP then learn = clock + LEARN end

local function entry(of)
  local granted, seats, its_held, its_entitled
  local text = redis.call('HGET', KEYS[2], of) or ''
  local its_sequence, rest = string.match(text, '^(%d+) (.*)$')
  if its_sequence then
    granted, seats, its_held, its_entitled = string.match(rest, '^(%d+) (%d+) (%d+) (%d+)$')
  end
  return its_sequence, tonumber(granted), tonumber(seats), tonumber(its_held or 0),
         tonumber(its_entitled or 0)
end

-- Agents that were silent for long have no calls.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', clock - AWAY)) do
  local _, _, _, its_held, its_entitled = entry(name)
  held, entitled = held - its_held, entitled - its_entitled
  redis.call('HDEL', KEYS[2], name)
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', clock - AWAY)
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', clock - WAITING)
if clock - recount >= RECOUNT then  -- whatever wrote the keys, the sums are right again soon
  held, entitled, recount = 0, 0, clock
  for _, text in ipairs(redis.call('HVALS', KEYS[2])) do
    local its_held, its_entitled = string.match(text, ' (%d+) (%d+)$')
    held, entitled = held + (its_held or 0), entitled + (its_entitled or 0)
  end
end

local buckets, limits, unfilled, binding = {}, {}, {}, ''
local names = {'rpm', 'tpm', 'itpm', 'otpm'}
for index, name in ipairs(names) do
  local limit = tonumber(ARGV[11 + index])
  if limit > 0 then buckets[name], limits[name] = number(10 + index, 0), limit end
  unfilled[name] = math.max(0, number(20 + index, 0)) + past
end
local function charges(requests, tokens_in, tokens_out)
  return {rpm = requests, tpm = tokens_in + tokens_out, itpm = tokens_in, otpm = tokens_out}
end
local in_flight, rpd = tonumber(ARGV[17]), tonumber(ARGV[16])

-- The charges of the last minute. `own` are those of the present slot, `older` is the
-- sum of the slots before it that count. Those are read only where they matter: twice a second.
local slot, strict = math.floor(now / SLOT), number(16, 0)
if strict > now + STRICT then strict = 0 end
local sums, slots, older = {}, nil, nil
for word in string.gmatch(state[17] or '', '%-?%d+') do sums[#sums + 1] = tonumber(word) end
local own = {sums[2] or 0, sums[3] or 0, sums[4] or 0}

local function add(sum, requests, tokens_in, tokens_out)
  sum[1], sum[2], sum[3] = sum[1] + requests, sum[2] + tokens_in, sum[3] + tokens_out
end

local function read_slots()
  local oldest = slot - (now < strict and STRICT_SLOTS or SLOTS)
  local form = '(%d+) (%-?%d+) (%-?%d+) (%-?%d+);'
  slots, older = {}, {0, 0, 0}
  for at, requests, tokens_in, tokens_out in string.gmatch(
      redis.call('HGET', KEYS[1], 'minute') or '', form) do
    at = tonumber(at)
    -- Slots of the future are there after the clock was set back.
    if slot - STRICT_SLOTS <= at and at <= slot then
      slots[at] = {tonumber(requests), tonumber(tokens_in), tonumber(tokens_out)}
      if at >= oldest and at < slot then add(older, unpack(slots[at])) end
    end
  end
end

if sums[1] == slot and sums[7] then
  older = {sums[5], sums[6], sums[7]}
else
  read_slots()
  if sums[1] and slot - STRICT_SLOTS <= sums[1] and sums[1] < slot then
    slots[sums[1]] = own
    add(older, unpack(own))
  end
  own, slots[slot] = slots[slot] or {0, 0, 0}, nil
end

local function total()
  return charges(older[1] + own[1], older[2] + own[2], older[3] + own[3])
end

local function give_back()
  if now >= strict then return add(own, -ARGV[4], -ARGV[5], -ARGV[6]) end
  if not slots then read_slots() end
  local earlier = slot - REFUND_SLOTS
  slots[earlier] = slots[earlier] or {0, 0, 0}
  add(slots[earlier], -ARGV[4], -ARGV[5], -ARGV[6])
  add(older, -ARGV[4], -ARGV[5], -ARGV[6])
end

local function size(name, cost)
  if now < strict then return cost[name] end
  return math.min(cost[name], math.max(1, SMALL * limits[name]))
end

-- The agent for whose next call room is kept.
local keep_at, keep_in, keep_out, keeper = string.match(state[18] or '', '^(%S+) (%d+) (%d+) (.+)$')
keep_at = math.min(tonumber(keep_at or nil) or -KEPT - 1, clock)
if not (clock - keep_at <= KEPT) then keeper = nil end
local kept = keeper and charges(1, tonumber(keep_in), tonumber(keep_out))

local function adjust()
  if clock - cut >= CALM then
    accepted = math.min(1, accepted + (remaining > 0.5 and FAST_GROWTH or GROWTH) * past / 1000)
  end
  if refused == 0 then return end
  if clock - cut >= CUT_EVERY then accepted, cut = math.max(MIN_SHARE, accepted * CUT), clock end
  local minute = total()
  for name, limit in pairs(limits) do
    if minute[name] > TOO_FULL * limit then strict = now + STRICT end
  end
  if not slots then read_slots() end
  pause = math.max(pause, clock + 1000 * math.min(tonumber(ARGV[8]), MAX_WAIT_S) / 2)
end

local full = true
local function fill(refund)
  for index, name in ipairs(names) do
    local bucket = buckets[name]
    if bucket then
      local rate = tonumber(ARGV[11 + index]) / 60000
      local capacity, gain = rate * CAPACITY, rate * USE * accepted * unfilled[name]
      unfilled[name] = 0
      if name == 'rpm' then capacity = math.max(capacity, 1 + rate * REST) end
      if kept then capacity = math.max(capacity, size(name, kept)) end
      if bucket > capacity then bucket = math.max(capacity, bucket - gain)
      else bucket = math.min(capacity, bucket + gain) end
      full = full and bucket >= capacity
      bucket = bucket + refund[name]
      if refused > 0 then bucket = math.min(bucket, 0) end
      buckets[name] = math.max(-rate * 60000, math.min(rate * 60000, bucket))
    end
  end
end

local function count_day()
  local today = math.floor(now / 86400000)
  if today ~= day then day, used = today, 0 end
  used = math.max(0, used - ARGV[4])
  -- When all agents return at once, each tells what it granted itself. An agent that returns later
  -- tells what the agents' own records leave out, because the others told of the rest.
  if clock < learn then
    -- What agents were told is too high once others have given something back.
    if tonumber(ARGV[21]) == day then used = math.max(used, tonumber(ARGV[22])) end
    used = used + ARGV[23]
  else
    -- The agents' own records leave running calls out.
    used = used + ARGV[24]
    if tonumber(ARGV[10]) == day then
      used = math.max(used, ARGV[11] + math.max(running, tonumber(ARGV[24])))
    end
  end
end

-- Returns the seats of this agent: leased, held, and those that it is entitled to. `held` and
-- `entitled` are then those of the others.
local function seat(others, its_held, its_seats, its_seen)
  local wanted = running + in_hand + waiting
  if in_flight == 0 then return wanted, running, running end
  local fair = math.floor(in_flight / (others + 1))
  local free = in_flight - held
  local seats = math.max(0, math.min(wanted, free, math.max(fair, in_flight - entitled)))
  if fair == 0 and (running > 0 or its_held > 0) then
    local turn = math.min(SEAT, math.floor(ROUND * in_flight / (others + 1)))
    local keeps = free > 0 and its_seats > 0
                  and math.floor(its_seen / turn) == math.floor(clock / turn)
    seats = math.max(running - 1, keeps and wanted > 0 and 1 or 0, 0)
  elseif fair == 0 then
    seats = math.max(0, math.min(wanted, free, 1))
  end
  if clock < learn then seats = math.min(seats, running) end
  local my_held = math.max(running, seats)
  return seats, my_held, math.max(my_held, math.min(wanted, fair))
end

local function stops(cost, first, waiting_agents, is_first)
  for _, name in ipairs(names) do
    local bucket = buckets[name]
    if bucket then
      local enough = name == 'rpm' and bucket >= 1 or name ~= 'rpm' and bucket > 0
      local taken = first[name] - bucket + cost[name]
      if not enough or (not is_first and taken > math.max(1, 3 * first[name] / waiting_agents)) then
        return name
      end
    end
  end
  return rpd > 0 and (used >= rpd or clock < learn) and 'rpd' or ''
end

-- Returns the limit whose minute has no room.
local function lacks(cost, minute)
  for _, name in ipairs(names) do
    if limits[name] and minute[name] > 0 then
      local others = kept and keeper ~= agent and size(name, kept) or 0
      if minute[name] + size(name, cost) + others > limits[name] then return name end
    end
  end
  return ''
end

-- Returns how many calls are granted, and whether room is kept for the next.
local function grant(seats, waiting_agents)
  if full and running > 0 then ends = math.max(ends, 1) end
  local first, minute, usable = {}, total(), seats - running - in_hand + ends
  for name, bucket in pairs(buckets) do first[name] = bucket end
  for call = 0, waiting - 1 do
    local tokens_in, tokens_out = tonumber(ARGV[25 + 2 * call]), tonumber(ARGV[26 + 2 * call])
    local cost = charges(1, tokens_in, tokens_out)
    binding = stops(cost, first, waiting_agents, call == 0)
    if in_flight > 0 and call >= usable then binding = 'in_flight' end
    if binding == '' then
      binding = lacks(cost, minute)
      if binding ~= '' then return call, not keeper or keeper == agent end
    end
    if binding ~= '' or pause > clock then return call end
    for name, bucket in pairs(buckets) do
      buckets[name], minute[name] = bucket - cost[name], minute[name] + cost[name]
    end
    add(own, 1, tokens_in, tokens_out)
    used = used + 1
  end
  return waiting
end

local known, granted, seats, its_held, its_entitled = entry(agent)
held, entitled = held - its_held, entitled - its_entitled
local refund = charges(tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]))
if known == sequence then refund, refused = charges(0, 0, 0), 0 end
adjust()
fill(refund)
if known ~= sequence then give_back() end
-- The starts of the calls.
local even = number(25, 0)
if refused > 0 or even > now + STRICT then even = now + STRICT end
local every = 0
if limits.rpm and in_flight == 0 and now < even then
  every = 60000 / (limits.rpm * USE * accepted)
end
local start = math.min(math.max(number(20, 0), now), now + LEAD)
local keep = keeper and state[18] or ''
if known == sequence then
  its_held = math.max(running, seats)
else
  count_day()
  redis.call('ZREM', KEYS[4], agent)
  if waiting > 0 then redis.call('ZADD', KEYS[4], clock, agent) end
  local others = redis.call('ZCARD', KEYS[3]) - (known and 1 or 0)
  local its_seen = tonumber(redis.call('ZSCORE', KEYS[3], agent) or nil) or clock
  seats, its_held, its_entitled = seat(others, its_held, seats or 0, its_seen)
  local keeps_room
  granted, keeps_room = grant(seats, math.max(1, redis.call('ZCARD', KEYS[4])))
  if keeps_room then
    local tokens_in, tokens_out = ARGV[25 + 2 * granted], ARGV[26 + 2 * granted]
    keep = string.format('%.0f %s %s %s', clock, tokens_in, tokens_out, agent)
  elseif keeper == agent then
    keep = ''
  end
  start = start + granted * every
end
redis.call('ZADD', KEYS[3], clock, agent)
redis.call('HSET', KEYS[2], agent,
           string.format('%s %d %d %d %d', sequence, granted, seats, its_held, its_entitled))

local function text(value) return string.format('%.17g', value) end
local written = {'at', string.format('%.0f', now), 'clock', text(clock),
                 'scale', text(accepted), 'cut', text(cut), 'pause', text(pause),
                 'day', day, 'used', used, 'held', held + its_held,
                 'claim', entitled + its_entitled,
                 'recount', text(recount), 'learn', text(learn),
                 'began', string.format('%.0f', began), 'strict', text(strict), 'keep', keep,
                 'start', text(start), 'even', text(even),
                 'minute_sums', string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f',
                 slot, own[1], own[2], own[3], unpack(older))}
for _, name in ipairs(names) do
  -- A bucket without a limit in this request is left to the agents that have one.
  if buckets[name] then
    written[#written + 1] = name
    written[#written + 1] = text(buckets[name])
  end
  written[#written + 1] = name .. '_unfilled'
  written[#written + 1] = text(unfilled[name])
end
if slots then
  local lines = {}
  for at, entry in pairs(slots) do
    lines[#lines + 1] = string.format('%.0f %.0f %.0f %.0f;', at, unpack(entry))
  end
  written[#written + 1] = 'minute'
  written[#written + 1] = table.concat(lines)
end
redis.call('HSET', KEYS[1], unpack(written))
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[18]) end
return {granted, seats, text(math.max(0, pause - clock)), text(accepted), redis.call('ZCARD', KEYS[3]),
        binding, day, used, began, text(every > 0 and math.max(0, start - granted * every - now) or 0), text(every)}
