
-- Ends permits whose actions do not happen, or have no events.
-- KEYS: META   ARGV: 1 partition   2 key   3 a new epoch's name; then ids
-- Returns the shard's clock.
local clock = enter(ARGV[3])
local k = get(ARGV[2])
for i = 4, #ARGV do
  finish(ARGV[2], k, ARGV[i], clock, true)
  spend(ARGV[2], ARGV[i], clock, SPENT)
end
keep(ARGV[1], ARGV[2], k, clock, 0, 0)
return clock
