// Package shard counts one partition's events exactly once, as a state machine: a record comes in,
// effects go out. It knows no Kafka, clock, lock, metric or log; all of these are its owner's
// (package aggregate), which tells it what was read, what was acknowledged and what time it is, and
// carries out what it asks for.
//
// # What makes it exact
//
// A key's state carries the offset that was applied to it last from each source, so an event that
// is read twice counts once, however far ahead of a checkpoint the state was written. A verdict is
// durable with the state that caused it before it is published. A checkpoint names the offsets
// below which all is in the changelog, and what else the partition knows.
//
// # What an owner does
//
//   - New, then the Takeover: Load for each record of the partition's changelog up to its own fence,
//     then Resume and Republish.
//   - For records: Record, and at times Step, with Effects after either.
//   - Acked for each append that carries an Ack, in the order of their offsets.
//   - For a checkpoint: BeginCheckpoint, whose Cut has the rest: CopyNext until nothing is left,
//     ProducerPart; it waits until all that was asked for before that is acknowledged; Encode, End;
//     and when that is acknowledged, too, Covered.
//   - It calls from one goroutine at a time.
//
// After an error of any method the shard is to be dropped: what was not durable is replayed by the
// next owner.
package shard
