// Package blocklist keeps the tables of enforcers in step with the blocklist in Redis (Feed), and a
// copy of a table on disk (Keeper). Package publish writes the blocklist.
//
// # Layout in Redis
//
// Everything of one shard lies in three keys of one hash slot. A verdict's shard is its partition
// of the verdict topic modulo the number of shards (one by default, more for Redis Cluster).
//
//	{PREFIX:SHARD}:verdicts   hash: record key of the verdict -> the verdict's JSON; and the meta
//	{PREFIX:SHARD}:expiry     sorted set: record key -> until + grace, in µs since the Unix epoch
//	{PREFIX:SHARD}:changes    stream of changes
//
// PREFIX is tallygate by default and SHARD a decimal number from 0. The meta are the fields of the
// hash that begin with a NUL byte (\0), so that they are lost and restored together with the
// verdicts. A reader of verdicts skips every field that begins with NUL. Numbers are decimal.
//
//	\0epoch        which life of this shard it is; greater than that of every earlier one
//	\0n            the number of the latest entry of the stream
//	\0stamp        that entry's stamp
//	\0applied      up to which time all partitions of the shard have been applied, in microseconds
//	               since the Unix epoch; 0 or absent until each was filled for the first time
//	\0reached:P    the offset of partition P of the verdict topic to apply next
//	\0applied:P    as \0applied, for partition P alone
//	\0shards       how many shards there are; absent when only older programs wrote. A program
//	               with another number refuses
//	\0beat         when the latest heartbeat was written, in milliseconds of the server's clock
//
// The stream's ids are EPOCH-N, where N counts from 1 without a gap. Each entry has the fields
//
//	s   its stamp, which no other entry has
//	p   the stamp of the entry before it; empty for the first of an epoch
//
// and then either k and v, the record key and the JSON of a verdict that was written; or k alone,
// for one that was removed; or h, a heartbeat about once a second, with the value of \0applied
// (publishers write at the multiples of a second, and it comes with the last partition that did).
// The stream is trimmed to about a fixed number of entries.
//
// # How to read it
//
// Read from primaries only. Take a snapshot: read the meta, scan the hash (HSCAN), read the meta
// again. Use one connection for all of it: a cursor means nothing to a server that restarted or
// took over. After each page, read the stream's new entries: from EPOCH-N of the first reading on,
// and at the end up to N of the second. The stream may not have them later. Of two verdicts with
// one record key, the one with the greater seq counts. Then follow the stream (XREAD). A reader has
// lost its place, and needs a new snapshot, when an entry's epoch differs, when its N is not the
// next, or when its p is not the previous stamp. Redis answers XREAD from a trimmed id with the
// first entry that is left, without an error; and after a failover the same id may be another
// entry. A reader has also lost its place when nothing, not even a heartbeat, came for three
// seconds and the meta no longer names the place. A snapshot is complete when \0applied is not 0
// and, after a lost place, not before the time of the loss. Until then Redis may be in the middle
// of a refill: add what the snapshot holds to what the reader had, and drop nothing.
//
// A block is in force while since <= now < until. Nothing in the stream says that one ran out.
// Blocks with mode shadow, states other than block, and verdicts whose apis don't cover the API
// don't deny.
//
// # How it is written
//
// One script (internal/store/apply.lua) applies a batch of one partition: the records between two
// offsets. It does so only if the batch begins at \0reached:P (absent is 0). Otherwise it writes
// nothing and returns the value that it has, and the publisher continues from there. So any number
// of publishers may run side by side, even paused ones, and a Redis that was flushed, restored or
// failed over is refilled. The script ignores a verdict whose seq is not above the one stored under
// its record key.
//
// The script removes an entry when its until plus a grace of an hour has passed, a few entries at a
// time. It never removes an entry earlier than it would have removed the verdict that the entry
// replaced. So a clear, whose until is the moment of clearing, outlives the block that it ended,
// and a repeated application cannot bring that block back. A removed entry can come back only long
// after its end: it then denies nothing, and is removed again. A record without a value (a
// tombstone of the topic) removes the entry at once. Notices (state warn) and what is left (state left)
// have record keys of their own. The latter has the offset of its record as seq, and is removed at its
// until: it is a hint, and nothing is lost with it.
package blocklist
