// Package blocklist keeps the tables of enforcers in step with the blocklist in Redis (Feed), and a
// copy of a table on disk (Keeper). Package publish writes the blocklist.
//
// # Layout in Redis
//
// Everything of one shard lies in three keys of one hash slot. A verdict's shard is its partition
// of the verdict topic modulo the number of shards (one by default, more for Redis Cluster).
//
//	{PREFIX:SHARD}:verdicts   hash: record key of the verdict -> the verdict's JSON; and the meta
//	{PREFIX:SHARD}:expiry     sorted set: record key -> until + grace, in microseconds since the Unix epoch
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
//	               since the Unix epoch; 0 or absent while one of them is being filled for the first time
//	\0reached:P    the offset of partition P of the verdict topic to apply next
//	\0applied:P    as \0applied, for partition P alone
//	\0shards       how many shards there are; absent when only older programs wrote. Whoever was told another number refuses
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
// again, all over one connection (a cursor means nothing to a server that was restarted or took
// over). After each page read what the stream has, from EPOCH-N of the first reading on, and in the
// end up to N of the second, where of two verdicts with one record key the greater seq holds: the
// stream may not have it later. Then follow the stream (XREAD). The place is lost, and a new
// snapshot needed, when an entry's epoch is another one, its N is not the next one or its p is not
// the stamp before: Redis answers XREAD from an id that was trimmed away with the first survivor
// and without an error, and after a failover the same id may be another entry. It is lost as well
// when nothing, heartbeats included, has come for three seconds and the meta doesn't name the place
// any more. A snapshot is complete when \0applied is not 0 and, after a lost place, not before the
// time of the loss: until then Redis may be being filled again, so what the snapshot holds is added
// to what the reader had, and nothing is dropped.
//
// A block is in force while since <= now < until. Nothing in the stream says that one ran out.
// Blocks with mode shadow, states other than block, and verdicts whose apis don't cover the API
// don't deny.
//
// # How it is written
//
// One script (internal/store/apply.lua) applies a batch of one partition: the records between two
// offsets. It does so only if the batch begins at \0reached:P (absent is 0), else it writes nothing
// and returns what it has, and the publisher goes on from there. So any number of publishers may
// run beside each other, paused ones included, and a Redis that was flushed, restored or failed
// over is filled again by itself. A verdict whose seq is not above that of the one held under its
// record key is ignored.
//
// An entry stays until its until plus a grace of an hour has passed, and is then removed by the
// script, a few at a time. It is never removed earlier than the verdict that it replaced would have
// been: a clear, whose until is the moment of clearing, thus outlives the block that it ended, and
// that block can't come back by being applied again. What is removed can come back only as
// something that has run out long ago, which denies nothing and is removed again. A record without
// a value (a tombstone of the topic) removes the entry at once. Notices (state warn) have record
// keys of their own.
package blocklist
