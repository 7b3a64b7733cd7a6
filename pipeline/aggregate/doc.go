// Package aggregate turns the event topic into counts and verdicts, exactly once.
//
// An Aggregator is one member of a Kafka consumer group, run by goka. This package joins the group,
// watches topics and rules; package ask answers its HTTP API. Each owned partition is an owner.Partition:
// its keys' states are in memory, a changelog recovers them, and its writers shut out every earlier
// owner. DESIGN.md and docs/internals/exactly-once.md tell how counts survive crashes and
// rebalances.
//
// Invariants:
//   - A partition belongs to one session at a time. What a session relies on (the topics' ids and
//     partition counts) is noted when it begins, and a change of it ends the session.
//   - Only checkpoints commit offsets. A claim starts where the partition's checkpoint ends,
//     whatever the group has committed.
//   - goka reads, writes and commits nothing by itself. It receives bundles, and its storage is
//     empty.
//   - A partition that fails is taken over again within the session. The session ends only for
//     errors that concern other partitions too (owner.EndsSession), and the instance only for
//     owner.ErrFatal.
//
// Lock order: rulebook.mu, instance.mu, ownership.mu. A partition's own lock (package owner) is
// taken under rulebook.mu or under none of these, and none of these is taken under it. rulebook.mu
// and members.mu are held during requests to Kafka; the others never are.
//
// Units: event.Micros are microseconds since the Unix epoch; settings are time.Duration; sizes are
// bytes; a "next" offset is the first one that is not counted.
package aggregate
