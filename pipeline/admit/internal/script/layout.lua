-- What a shard keeps about strict limits, besides the blocklist. The reference is protocol.Memory; the names here are those there.
-- RUN is the id of the process that this script was loaded into: it stands above this text, so a process that was not asked for
-- its id does not know the script.
--
-- Values are lists that pack writes one behind the other, and unpacked returns as so many results.
-- META is the shard's memory: {clock, TIME of the last call, run, epoch, was}.   META:partitions is the set of partitions.
-- META:p:P is what it knows of a partition: {until, version, settled, beat, forwarded, reached, life, forgot}, and of the
-- last grants {until, hold, life, rules}: those with a hold hold under limits with that one or a shorter one, by these rules, in this life.
-- was, forgot and the grants are missing where a script wrote that knows nothing of them.
-- META:k:KEY is a key, all in one list, since lists of lists take twice the time:
--   clock: that of the latest permit that has ended, seq, latest, exempt, due: when the sweep looks at it, or 0
--   how many sections; of each its name, tier, level, how many numbers in steps, and those: until, amount, …
--   (a level of -1: the owner counts by later rules, which lack the limit; while the version in place of the tier is in force)
--   and the permits to the end, in the order of at: id, at, again, how many parts; of each name, kind, amount, until, hold, returns
--   again: 0, 1 if another question for it may still arrive, or for how many µs its id is not to be granted again once it has ended
-- META:s:ID KEY is there for an id that has ended, and for which another question may still arrive: until when it may not be granted again. Redis lets it expire, by TIME: when
-- that jumps ahead, so does the clock, and a question that is that old is too late.
-- META:due:P is the sorted set of a partition's keys by due.
-- Numbers are µs and millionths: doubles hold them exactly.

local call, floor, max, min = redis.call, math.floor, math.max, math.min
local META = KEYS[1]
local WINDOW, BUCKET, INFLIGHT = 0, 1, 2
-- Redis in memory, for tests and demonstrations, has no cmsgpack. first is unpacked for lists of which only the beginning counts.
local pack, unpacked, first, answer
if msgpack then
  pack, unpacked, first, answer = msgpack.pack, msgpack.unpack, msgpack.unpack, struct.pack
else
  function pack(...) return cjson.encode({...}) end
  function unpacked(raw) return unpack(cjson.decode(raw)) end
  function first(raw) return unpack(cjson.decode(raw), 1, 30) end
  function answer(_, ...) return {...} end
end
-- Lua has no room for more than some thousand results: a longer list is written as one value.
local function write(list)
  if not msgpack then return cjson.encode(list) end
  if #list > 4000 then return pack(list) end
  return pack(unpack(list))
end

local function read(raw)
  if not msgpack then return cjson.decode(raw) end
  local list = {unpacked(raw)}
  if type(list[1]) == 'table' then return list[1] end
  return list
end

-- By how much a product of doubles may be wrong.
local ROUNDING = 1 / 1125899906842624

-- How far the clock may be ahead of a publisher's.
local AHEAD = 60000000

-- How long an id that has ended is remembered at least, by the clock.
local SPENT = 5000000
