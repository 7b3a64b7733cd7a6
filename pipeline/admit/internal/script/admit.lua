
-- Answers questions, one after the other: each grants permits for one key, or says why not.
-- KEYS: META   ARGV: of each question a list: 1 partition (text)   2 key   3 before   4 version   5 a new epoch's name   6 1: the key is exempt,
--       plus 2: asked again, plus 4: nothing is granted anew, plus 8 times for how many µs the ids are remembered once they have
--       ended   7 how many ids; the ids; how many limits; of each limit its name, kind, amount, threshold, lowest, hold, returns,
--       how many tiers, how many ends, its former names with a space on both sides of each, or nothing; of a window grain, offset,
--       keeps, and how long one is that begins with an event, or 0; of a bucket rate, per, 0 and 0; then each tier's id (text) and
--       threshold, and each end.
-- Returns status, now, clock, version, at, decides, used, limit, retry at, reset at, and how many ids are granted, the first ones;
-- where it is asked again 0, and then those that are granted. All are in one string, which takes less than a list.
-- Several questions have a list of answers. One that failed has a text that begins with '!', and is no other one's matter. It is no
-- error reply: clients may end reading a list at one, and take what is left of it for the next answer.

-- An answer; and a permit with one part as MessagePack, by itself and as a key's first one. To make them by this is faster than by
-- cmsgpack, which makes a string of each value first. 0xda begins a text, 0xd3 a number.
local ANSWER, PERMIT, FIRST = '>Bi8i8i8i8i8i8i8i8i8i8', '>BI2c0Bi8BBBI2c0BBi8Bi8Bi8B', '>BBBBBi8BBI2c0Bi8BBBI2c0BBi8Bi8Bi8B'

-- The shard's clock and epoch, for all questions of the call. A memory that is missing, or of another process, is a new epoch.
local entered, fresh, clock, was = false, false, 0, 0
local parts = {} -- the partitions that were read
local function enter(raw, name)
  local time = call('TIME')
  local t = time[1] * 1000000 + time[2]
  local last, run, epoch = 0, '', ''
  if raw then clock, last, run, epoch, was = unpacked(raw) end
  was = was or 0
  fresh = run ~= RUN
  if fresh then
    run, epoch = RUN, name
    for _, one in ipairs(call('SMEMBERS', META .. ':partitions')) do
      local value = call('GET', META .. ':p:' .. one)
      if value then
        local part = {unpacked(value)}
        part[1], part[3], part[5], part[7] = 0, 0, 0, epoch
        call('SET', META .. ':p:' .. one, pack(unpack(part)))
      end
    end
  end
  if t > last and last > 0 then clock = clock + floor((t - last) * 9 / 10) end
  if t > clock then clock = t end
  if fresh or t < last or t - last >= 100000 then call('SET', META, pack(clock, t, run, epoch, was)) end
  entered = true
end

-- Tells whether the permit at k[i] is what a question asks for. One that is in flight may be of rules that have changed since: one
-- limit is enough.
local function is_for(k, i, q, remember)
  local flies, one, want = false, false, 9 + q[7]
  while want <= #q do
    local amount = nil
    for part = i + 4, i + 3 + 6 * k[i + 3], 6 do
      if k[part] == q[want] or string.find(q[want + 9], ' ' .. k[part] .. ' ', 1, true) then amount = amount or k[part + 2] end
    end
    if q[want + 1] == INFLIGHT then
      flies, one = true, one or amount ~= nil
    elseif remember > 0 and not (amount and amount >= q[want + 2]) then
      return false
    end
    want = want + 14 + 2 * q[want + 7] + q[want + 8]
  end
  return one or not flies
end

-- Tells whether permits may be granted for what is asked for while they may not be under all limits.
local function some(part, q, wanted, holds)
  local hold = part[10]
  if not hold or hold == 0 or part[9] <= clock or part[11] ~= part[7] or part[12] ~= wanted then return false end
  if not q then return holds <= hold end
  local want = 9 + q[7]
  while want <= #q do
    if q[want + 5] > hold then return false end
    want = want + 14 + 2 * q[want + 7] + q[want + 8]
  end
  return true
end

local function admit(arg)
  -- Most questions are for one permit under one limit without tiers: then no list is made of them.
  local p, text, before, wanted, epoch_name, how, ids, id, limits, name, kind, amount, threshold, lowest, holds, returns, tiers, ends, formers, grain, offset, keeps, lasts = first(arg)
  local q
  if ids ~= 1 or limits ~= 1 or tiers > 0 or ends > 0 then
    q = read(arg)
    p, text, before, wanted, epoch_name, how, ids, id = unpack(q, 1, 8)
    limits = q[8 + ids]
  end
  local key, part = META .. ':k:' .. text, parts[p]
  local raw
  if ids == 1 and part then
    raw = call('MGET', key, META .. ':s:' .. id .. ' ' .. text)
  elseif ids == 1 then
    raw = call('MGET', key, META .. ':s:' .. id .. ' ' .. text, META, META .. ':p:' .. p)
  else
    local reads = {key}
    for i = 1, ids do reads[1 + i] = META .. ':s:' .. q[7 + i] .. ' ' .. text end
    reads[2 + ids], reads[3 + ids] = META, META .. ':p:' .. p
    raw = call('MGET', unpack(reads))
  end
  if not entered then enter(raw[2 + ids], epoch_name) end
  if not part then
    part = {0, 0, 0, 0}
    if raw[3 + ids] then part = {unpacked(raw[3 + ids])} end
    if fresh then part[1], part[3], part[10] = 0, 0, 0 end
    parts[p] = part
  end
  local till, version, settled, beat = part[1], part[2], part[3], part[4]
  local k = raw[1] and read(raw[1]) or {0, 0, 0, 0, 0, 0}
  local size, sections, i, count, newest, asked = #k, 7, 7, 0, k[1], nil
  for _ = 1, k[6] do i = i + 4 + k[i + 3] end
  local permits = i
  while i <= size do
    count, newest = count + 1, k[i + 1]
    if k[i] == id then asked = true end
    for j = 9, 7 + ids do
      if k[i] == q[j] then asked = true end
    end
    i = i + 4 + 6 * k[i + 3]
  end
  local now = clock
  if newest > now then now = newest end
  if k[3] > now then now = k[3] end

  if before < clock then return answer(ANSWER, 3, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
  for j = 2, 1 + ids do
    if raw[j] and tonumber(raw[j]) >= clock then return answer(ANSWER, 4, now, clock, version, 0, -1, 0, 0, tonumber(raw[j]), 0, 0) end
  end
  local remember = floor(how / 8)
  local again = remember > 0 and remember or floor(how / 2) % 2
  if asked then
    q = q or read(arg)
    local granted, at, renewed = {}, nil, nil
    for j = 8, 7 + ids do
      i = permits
      while i <= size do
        if k[i] == q[j] then
          at = at or k[i + 1]
          granted[#granted + 1] = q[j]
          if again > k[i + 2] then k[i + 2], renewed = again, true end
          if not is_for(k, i, q, remember) then return answer(ANSWER, 8, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
          -- What is in flight takes its whole time again.
          for part = i + 4, i + 3 + 6 * k[i + 3], 6 do
            local want = 9 + ids
            while k[part + 1] == INFLIGHT and want <= #q do
              if q[want] == k[part] and now + q[want + 5] > k[part + 4] then k[part + 4], renewed = now + q[want + 5], true end
              want = want + 14 + 2 * q[want + 7] + q[want + 8]
            end
          end
        end
        i = i + 4 + 6 * k[i + 3]
      end
    end
    if renewed then call('SET', key, write(k)) end
    if msgpack then return answer(ANSWER, 0, now, clock, version, at, -1, 0, 0, 0, 0, 0) .. pack(unpack(granted)) end
    return answer(ANSWER, 0, now, clock, version, at, -1, 0, 0, 0, 0, 0, unpack(granted))
  end
  -- By the clock before it was set back the first time that it was asked may be long ago.
  if floor(how / 2) % 2 == 1 and clock < was then return answer(ANSWER, 3, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
  -- Of a publisher that is away the last heartbeat is old, too.
  if till <= clock and not some(part, q, wanted, holds) then return answer(ANSWER, 5, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
  if clock > beat + AHEAD then return answer(ANSWER, 9, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
  if version ~= wanted then return answer(ANSWER, 6, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
  if how % 8 >= 4 then return answer(ANSWER, 4, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end

  local parts, room, least = nil, ids, math.huge
  local decides, decided_used, decided_limit, retry, reset, hold = -1, 0, 0, 0, 0, 0
  local until_, doubt = 0, false
  local place = 9 + ids
  for n = 0, limits - 1 do
    if q then
      name, kind, amount, threshold, lowest, holds, returns, tiers, ends, formers, grain, offset, keeps, lasts = unpack(q, place, place + 13)
      place = place + 14
    end
    local s, gone = sections, false
    for _ = 1, k[6] do
      if k[s] == name or formers ~= '' and string.find(formers, ' ' .. k[s] .. ' ', 1, true) then
        if k[s + 2] ~= -1 then break end
        gone = gone or tonumber(k[s + 1]) == version -- the owner counts by later rules, which lack the limit
      end
      s = s + 4 + k[s + 3]
    end
    if s >= permits then s = nil end
    doubt = doubt or gone and not s
    local limit = threshold
    if threshold < 0 then
      limit = lowest
      -- When nothing of the level counts any more, the key's tier is not known either.
      local known = tiers > 0 and s and (k[3] >= clock or k[4] > clock)
      local at = sections
      while tiers > 0 and s and not known and at < permits do
        known = k[at + 2] ~= 0
        for j = at + 4, at + 3 + k[at + 3], 2 do known = known or k[j] > clock end
        at = at + 4 + k[at + 3]
      end
      for j = place, place + 2 * tiers - 1, 2 do
        if known and k[s + 1] == q[j] then limit = q[j + 1] end
      end
    end
    place = place + 2 * tiers
    until_ = 0
    if kind == WINDOW then
      if ends == 0 then
        until_ = floor((now - offset) / grain) * grain + offset + keeps
      else
        for j = place, place + ends - 1 do
          if q[j] > now then
            until_ = q[j]
            break
          end
        end
        if until_ == 0 then return answer(ANSWER, 7, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
      end
    end
    place = place + ends
    local used, latest, any, falls = 0, 0, false, nil
    -- Of a window that begins with an event: what is under way falls with what was counted, else it begins one itself.
    local counted = 0
    if s and kind == BUCKET then
      latest, used, any = k[3], k[s + 2], true
    elseif s then
      for j = s + 4, s + 3 + k[s + 3], 2 do
        if k[j] > now then
          used = used + k[j + 1]
          counted = k[j]
          reset = max(reset, k[j])
        end
      end
    end
    i = permits
    while i <= size do
      for j = i + 4, i + 3 + 6 * k[i + 3], 6 do
        -- A part: name, kind, amount, until, hold, returns. One whose action should have ended may weigh no more.
        -- What was granted under a former name counts until its event will, by the window as it is now.
        local mine, falls_at = k[j] == name, k[j + 3]
        if not mine and formers ~= '' and string.find(formers, ' ' .. k[j] .. ' ', 1, true) then
          mine = true
          if kind == WINDOW and ends == 0 then falls_at = floor((k[i + 1] - offset) / grain) * grain + offset + keeps end
        end
        if mine and not ((kind == INFLIGHT or k[j + 5] == 1) and k[j + 4] <= now and (kind == INFLIGHT or settled > k[j + 4])) then
          if kind == BUCKET then
            local at = k[i + 1]
            if not any or at > latest then
              if any then
                local x = (at - latest) / offset * grain
                used = max(0, used - max(0, floor(x - x * ROUNDING - 0.5)))
              end
              latest, any = at, true
            end
            used = used + k[j + 2]
          elseif kind == INFLIGHT or falls_at > now then
            used = used + k[j + 2]
            if lasts > 0 then falls_at = counted > 0 and counted or falls_at - keeps + lasts end
            reset = max(reset, falls_at)
          end
        end
      end
      i = i + 4 + 6 * k[i + 3]
    end
    if kind == BUCKET then
      if any and now > latest then
        local x = (now - latest) / offset * grain
        used = max(0, used - max(0, floor(x - x * ROUNDING - 0.5)))
      end
      reset = max(reset, now + math.ceil(used / grain * offset))
    end
    local left = limit - used
    -- Limits of one key may count different things, such as money and tokens: the room is in requests like this.
    if left / amount < least then least, decides, decided_used, decided_limit = left / amount, n, used, limit end
    local fits = min(floor(left / amount), ids)
    if fits < 1 and amount <= limit then
      -- When the amount fits, if no more is counted.
      if kind == BUCKET then
        retry = max(retry, now + math.ceil((used + amount - limit) / grain * offset) + 1)
      elseif kind == WINDOW then
        falls = {}
        if s then
          for j = s + 4, s + 3 + k[s + 3], 2 do
            if k[j] > now then falls[#falls + 1] = {k[j], k[j + 1]} end
          end
        end
        i = permits
        while i <= size do
          for j = i + 4, i + 3 + 6 * k[i + 3], 6 do
            local mine, falls_at = k[j] == name, k[j + 3]
            if not mine and formers ~= '' and string.find(formers, ' ' .. k[j] .. ' ', 1, true) then
              mine = true
              if ends == 0 then falls_at = floor((k[i + 1] - offset) / grain) * grain + offset + keeps end
            end
            if mine and falls_at > now and not (k[j + 5] == 1 and k[j + 4] <= now and settled > k[j + 4]) then
              if lasts > 0 then falls_at = counted > 0 and counted or falls_at - keeps + lasts end
              falls[#falls + 1] = {falls_at, k[j + 2]}
            end
          end
          i = i + 4 + 6 * k[i + 3]
        end
        table.sort(falls, function(a, b) return a[1] < b[1] end)
        local rest = used
        for _, fall in ipairs(falls) do
          rest = rest - fall[2]
          if rest + amount <= limit then
            retry = max(retry, fall[1])
            break
          end
        end
      end
    end
    room = max(0, min(room, fits))
    hold = max(hold, now + holds)
    if limits == 1 then break end
    if parts then
      local at = #parts
      parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4], parts[at + 5], parts[at + 6] = name, kind, amount, until_, now + holds, returns
    else
      parts = {name, kind, amount, until_, now + holds, returns}
    end
  end
  if doubt then return answer(ANSWER, 5, now, clock, version, 0, -1, 0, 0, 0, 0, 0) end
  decided_used = math.ceil(decided_used)

  if how % 2 == 1 or k[4] > now then return answer(ANSWER, 0, now, clock, version, now, decides, decided_used, decided_limit, 0, reset, ids) end
  if room == 0 then return answer(ANSWER, 1, now, clock, version, 0, decides, decided_used, decided_limit, retry, reset, 0) end
  room = min(room, 1000 - count)
  if room <= 0 then return answer(ANSWER, 2, now, clock, version, 0, decides, decided_used, decided_limit, retry, reset, 0) end

  local found = raw[1]
  if ids == 1 and limits == 1 and remember == 0 and msgpack and (not found or size <= 4000 and k[5] > 0 and k[5] <= hold) then
    -- Most questions: the permit is appended to what is there.
    if found then
      call('APPEND', key, struct.pack(PERMIT, 0xda, #id, id, 0xd3, now, again, 1, 0xda, #name, name, kind, 0xd3, amount, 0xd3, until_, 0xd3, hold, returns))
    else
      call('ZADD', META .. ':due:' .. p, hold, text)
      call('SET', key, struct.pack(FIRST, 0, 0, 0, 0, 0xd3, hold, 0, 0xda, #id, id, 0xd3, now, again, 1, 0xda, #name, name, kind, 0xd3, amount, 0xd3, until_, 0xd3, hold, returns))
    end
  elseif found and msgpack and size <= 4000 and k[5] > 0 and k[5] <= hold then
    parts = parts or {name, kind, amount, until_, hold, returns}
    local all = {}
    for j = 1, room do all[j] = pack(q and q[7 + j] or id, now, again, limits, unpack(parts)) end
    call('APPEND', key, table.concat(all))
  else
    parts = parts or {name, kind, amount, until_, hold, returns}
    for j = 8, 7 + room do
      k[size + 1], k[size + 2], k[size + 3], k[size + 4] = q and q[j] or id, now, again, limits
      for n = 1, #parts do k[size + 4 + n] = parts[n] end
      size = size + 4 + #parts
    end
    if k[5] == 0 or hold < k[5] then
      k[5] = hold
      call('ZADD', META .. ':due:' .. p, hold, text)
    end
    call('SET', key, write(k))
  end
  return answer(ANSWER, 0, now, clock, version, now, decides, decided_used, decided_limit, 0, reset, room)
end

if #ARGV == 1 then return admit(ARGV[1]) end
local answers = {}
for i = 1, #ARGV do
  local well, result = pcall(admit, ARGV[i])
  if not well then result = '!' .. (type(result) == 'table' and result.err or tostring(result)) end
  answers[i] = result
end
return answers
