
-- Applies records of one partition of the verdict topic, in their order, and sweeps what is over.
-- KEYS: META   ARGV: 1 partition   2 partitions of the topic   3 shards   4 start   5 next   6 beat   7 a new name   8 1: records are
--       missing   9, 10 forwarded: epoch and moment   11, 12 settled: life and moment   13 lost permits named at most; then of
--       each record its kind and what it says: 'G' run, life, until, hold, rules; 'V' version; 'L' key, level: none for a tombstone, or a list
--       of seq, latest, exempt, how many permits it settles, those, how many sections, and those as a key has them.
-- Returns {1 applied or 0, reached, clock, least, run, epoch, life, and of each lost permit its key and what KEY has of it}.

local p, name = ARGV[1], ARGV[7]
local clock, epoch, time, was = enter(name)
local part = partition(p)
if part[7] == '' then
  part[7] = epoch
  call('SADD', META .. ':partitions', p)
end
if string.format('%.0f', part[6]) ~= ARGV[4] then
  return {0, part[6], clock, 0, RUN, epoch, part[7]}
end

local beat, before = tonumber(ARGV[6]), epoch
clock, epoch, was = set_back(beat, clock, epoch, time, was)
if epoch ~= before then part = partition(p) end
part[8] = max(part[8] or 0, min(clock, beat))
if ARGV[8] == '1' then
  part[1], part[3], part[7] = 0, 0, name
  for _, text in ipairs(call('ZRANGE', META .. ':due:' .. p, 0, -1)) do
    local k = get(text)
    k[6] = {}
    keep(p, text, k, clock, 0, part[8])
  end
end

-- The keys are read in one call, and written in one.
local names, seen, i = {}, {}, 14
while i <= #ARGV do
  local kind = ARGV[i]
  if kind == 'L' then
    local text = ARGV[i + 1]
    if not seen[text] then
      seen[text] = true
      names[#names + 1] = META .. ':k:' .. text
    end
  end
  i = i + (kind == 'V' and 2 or kind == 'L' and 3 or 6)
end
local kept = {}
for from = 1, #names, 500 do
  local to = min(from + 499, #names)
  for n, raw in ipairs(call('MGET', unpack(names, from, to))) do
    kept[names[from + n - 1]] = raw and read(raw) or {0, 0, 0, 0, 0, 0}
  end
end

-- A key with a level in place of the one that it had, and without the permits that the level settles. l is nil for a tombstone.
local function leveled(text, f, l)
  local out = {f[1], f[2], f[3], f[4], f[5]}
  local n, sections, i = 6, f[6], 7
  local fresh = l and l[1] >= f[2]
  if not l then
    out[2], out[3], out[4], out[6] = 0, 0, 0, 0
  elseif fresh then
    out[2], out[3], out[4] = l[1], l[2], l[3]
  end
  local settled = l and l[4] or 0
  -- Past the old sections, which stay if the level is an older one.
  local keeps = l and not fresh
  if keeps then out[6] = sections end
  for _ = 1, sections do
    local size = 4 + f[i + 3]
    if keeps then
      for j = i, i + size - 1 do
        n = n + 1
        out[n] = f[j]
      end
    end
    i = i + size
  end
  if fresh then
    local j = 5 + settled
    out[6] = l[j]
    for at = j + 1, #l do
      n = n + 1
      out[n] = l[at]
    end
  end
  local ids = {}
  for j = 5, 4 + settled do ids[l[j]] = true end
  while i <= #f do
    local size = 4 + 6 * f[i + 3]
    out[1] = max(out[1], f[i + 1])
    if ids[f[i]] then
      if f[i + 2] > 0 then spend(text, f[i], clock, f[i + 2]) end
    else
      for j = i, i + size - 1 do
        n = n + 1
        out[n] = f[j]
      end
    end
    i = i + size
  end
  return out
end

i = 14
while i <= #ARGV do
  local kind = ARGV[i]
  if kind == 'V' then
    part[2] = tonumber(ARGV[i + 1])
    i = i + 2
  elseif kind == 'G' then
    if ARGV[i + 1] == RUN and ARGV[i + 2] == part[7] then
      part[9], part[10], part[11], part[12] = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), part[7], tonumber(ARGV[i + 5])
      if part[10] == 0 then part[1] = max(part[1], part[9]) end
    end
    i = i + 6
  else
    local text, value = ARGV[i + 1], ARGV[i + 2]
    local name = META .. ':k:' .. text
    local l = value ~= '' and read(value) or nil
    local f = leveled(text, kept[name], l)
    -- The sweep looks at it soon: at permits that are left, and at what is over.
    if f[5] == 0 then
      f[5] = clock + 1000000
      call('ZADD', META .. ':due:' .. p, string.format('%.0f', f[5]), text)
    end
    kept[name] = f
    i = i + 3
  end
end
for from = 1, #names, 500 do
  local pairs_ = {}
  for n = from, min(from + 499, #names) do
    pairs_[#pairs_ + 1], pairs_[#pairs_ + 2] = names[n], write(kept[names[n]])
  end
  call('MSET', unpack(pairs_))
end

part[4], part[6] = tonumber(ARGV[6]), tonumber(ARGV[5])
if ARGV[9] == epoch then part[5] = max(part[5], tonumber(ARGV[10])) end
if ARGV[11] == part[7] then part[3] = max(part[3], tonumber(ARGV[12])) end
keep_partition(p, part)

-- Up to when all partitions have forwarded.
local least = part[5]
for q = 0, tonumber(ARGV[2]) - 1 do
  if least > 0 and tostring(q) ~= p then least = min(least, partition(q)[5]) end
end

local function lost(permit, settled)
  local counts = false
  for j = 4, #permit, 6 do
    local kind, hold = permit[j + 1], permit[j + 4]
    if hold > clock then return false, false end
    if kind ~= INFLIGHT then
      if settled <= hold then return false, false end
      counts = counts or permit[j + 5] == 0
    end
  end
  return true, counts
end

local out = {1, part[6], clock, least, RUN, epoch, part[7]}
local named, due_set = 0, META .. ':due:' .. p
for _, text in ipairs(call('ZRANGEBYSCORE', due_set, '-inf', string.format('%.0f', clock), 'LIMIT', 0, 100)) do
  local k = get(text)
  local again, i = 0, 1
  while i <= #k[6] do
    local permit = k[6][i]
    local over, counts = lost(permit, part[3])
    if over and not counts then
      finish(text, k, permit[1], clock)
    else
      if over and named < tonumber(ARGV[13]) then
        named = named + 1
        permit[3] = max(permit[3], 1) -- its id counts now, and is not to be granted again
        out[#out + 1] = {text, permit[1], permit[2], unpack(permit, 4)}
      end
      local hold = 0
      for j = 4, #permit, 6 do hold = max(hold, permit[j + 4]) end
      -- Behind its hold it is looked at every second, until it is settled.
      hold = max(hold, clock + 1000000)
      if again == 0 or hold < again then again = hold end
      i = i + 1
    end
  end
  local falls = 0
  for _, section in ipairs(k[5]) do
    for j = 1, #section[4], 2 do falls = max(falls, section[4][j]) end
  end
  if again == 0 then again = max(falls, k[4], k[3] + 1, k[1] + 1) end
  k[7] = 0
  call('ZREM', due_set, text)
  if again <= clock then again = clock + 1000000 end -- it stays for permits, or since the clock may be set back
  keep(p, text, k, clock, again, min(clock, part[8]))
end
return out
