
-- Notes up to when a partition of another shard has forwarded.
-- KEYS: META   ARGV: 1 partition   2 a new epoch's name   3, 4 forwarded: epoch and moment
-- Returns what apply returns.
local clock, epoch = enter(ARGV[2])
local part = partition(ARGV[1])
if part[7] == '' then
  part[7] = epoch
  call('SADD', META .. ':partitions', ARGV[1])
end
if ARGV[3] == epoch then part[5] = max(part[5], tonumber(ARGV[4])) end
keep_partition(ARGV[1], part)
return {1, part[6], clock, 0, RUN, epoch, part[7]}
