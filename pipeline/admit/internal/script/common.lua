
local function partition(p)
  local raw = call('GET', META .. ':p:' .. p)
  if raw then return {unpacked(raw)} end
  return {0, 0, 0, 0, 0, 0, '', 0}
end

local function keep_partition(p, part) call('SET', META .. ':p:' .. p, pack(unpack(part))) end

-- Begins a call: returns the shard's clock and epoch. A memory that is missing, or of another process, is a new epoch.
local function enter(name)
  local time = call('TIME')
  local t = time[1] * 1000000 + time[2]
  local raw = call('GET', META)
  local clock, last, run, epoch, was = 0, 0, '', '', 0
  if raw then clock, last, run, epoch, was = unpacked(raw) end
  was = was or 0
  local fresh = run ~= RUN
  if fresh then
    run, epoch = RUN, name
    for _, p in ipairs(call('SMEMBERS', META .. ':partitions')) do
      local part = partition(p)
      part[1], part[3], part[5], part[7] = 0, 0, 0, name
      keep_partition(p, part)
    end
  end
  if last > 0 and t > last then clock = clock + floor((t - last) * 9 / 10) end
  clock = max(clock, t)
  -- The clock is kept ten times a second: when TIME jumps back it may go back by that much, and the keys' own clocks do not.
  if fresh or t < last or t - last >= 100000 then call('SET', META, pack(clock, t, run, epoch, was)) end
  return clock, epoch, t, was
end

-- What a memory goes on as when its clock was set back.
local function turned(name)
  local first, n = string.match(name, '^([^~]*)~?(%d*)')
  return first .. '~' .. string.format('%d', (tonumber(n) or 0) + 1)
end

-- Sets the clock to TIME, when it is far ahead of a publisher's and TIME is not: see protocol.Memory. Returns what holds then. Where a
-- script has forgotten levels by the clock alone, which it does not tell, the clock stays.
local function set_back(beat, clock, epoch, t, was)
  if clock <= beat + AHEAD or t > beat + AHEAD then return clock, epoch, was end
  local to = t
  local all = call('SMEMBERS', META .. ':partitions')
  for _, p in ipairs(all) do
    local part = partition(p)
    local forgot = part[8] or 0
    if forgot < part[4] then forgot = clock end
    to = max(to, forgot)
  end
  if to > beat + AHEAD then return clock, epoch, was end
  was = max(was, clock)
  clock, epoch = to, turned(epoch)
  call('SET', META, pack(clock, t, RUN, epoch, was))
  for _, p in ipairs(all) do
    local part = partition(p)
    part[1], part[3], part[5], part[7] = 0, 0, 0, turned(part[7])
    keep_partition(p, part)
  end
  return clock, epoch, was
end

-- Reads a key: {clock, seq, latest, exempt, sections, permits, due}, each section {name, tier, level, steps}, each permit
-- {id, at, again, parts, …}.
local function get(text)
  local raw = call('GET', META .. ':k:' .. text)
  if not raw then return {0, 0, 0, 0, {}, {}, 0} end
  local f = read(raw)
  local sections, permits, i = {}, {}, 7
  for s = 1, f[6] do
    local steps = {}
    for j = 1, f[i + 3] do steps[j] = f[i + 3 + j] end
    sections[s] = {f[i], f[i + 1], f[i + 2], steps}
    i = i + 4 + f[i + 3]
  end
  while i <= #f do
    local permit = {f[i], f[i + 1], f[i + 2]}
    for j = 1, 6 * f[i + 3] do permit[3 + j] = f[i + 3 + j] end
    permits[#permits + 1] = permit
    i = i + 4 + 6 * f[i + 3]
  end
  local clock = f[1]
  if #permits > 0 then clock = max(clock, permits[#permits][2]) end
  return {clock, f[2], f[3], f[4], sections, permits, f[5]}
end

-- Tells whether nothing counts any more. A bucket's rate is not known here: its level stays as long as the key's state.
local function over(k, clock)
  if k[3] >= clock or k[4] > clock then return false end
  for _, s in ipairs(k[5]) do
    if s[3] ~= 0 then return false end
    for j = 1, #s[4], 2 do
      if s[4][j] > clock then return false end
    end
  end
  return true
end

-- Stores a key, or removes it when there is nothing to keep. due is when the sweep is to look at it at the latest. forgot is up to when
-- levels may be forgotten.
local function keep(p, text, k, clock, due, forgot)
  if #k[6] == 0 and k[1] < clock and (k[2] == 0 and k[4] == 0 and #k[5] == 0 or over(k, forgot)) then
    call('DEL', META .. ':k:' .. text)
    return
  end
  if due > 0 and (k[7] == 0 or due < k[7]) then
    k[7] = due
    call('ZADD', META .. ':due:' .. p, string.format('%.0f', due), text)
  end
  local f = {k[1], k[2], k[3], k[4], k[7], #k[5]}
  for _, s in ipairs(k[5]) do
    local at, steps = #f, s[4]
    f[at + 1], f[at + 2], f[at + 3], f[at + 4] = s[1], s[2], s[3], #steps
    for j = 1, #steps do f[at + 4 + j] = steps[j] end
  end
  for _, permit in ipairs(k[6]) do
    local to = #f
    f[to + 1], f[to + 2], f[to + 3], f[to + 4] = permit[1], permit[2], permit[3], (#permit - 3) / 6
    for j = 4, #permit do f[to + 1 + j] = permit[j] end
  end
  call('SET', META .. ':k:' .. text, write(f))
end

-- Remembers for a time that an id may not be granted again. Redis lets it expire by TIME, which may run ahead of the clock by a ninth.
local function spend(text, id, clock, keeps)
  local name, ends = META .. ':s:' .. id .. ' ' .. text, clock + max(SPENT, keeps)
  local had = call('GET', name)
  if had and tonumber(had) >= ends then return end
  call('SET', name, string.format('%.0f', ends), 'PX', floor((ends - clock) / 900) + 500)
end

-- Ends a permit. What was cancelled, and not counted, is remembered by the caller.
local function finish(text, k, id, clock, cancelled)
  local permits = k[6]
  for i = 1, #permits do
    if permits[i][1] == id then
      if permits[i][3] > 0 and not cancelled then spend(text, id, clock, permits[i][3]) end
      table.remove(permits, i)
      return
    end
  end
end
