// Package owner is one partition for as long as an instance owns it. It takes the partition over
// from the owner before, reads its sources, feeds its shard, carries out the shard's effects, makes
// checkpoints, and releases the partition.
//
// Invariants:
//   - From the fence record on, no earlier owner can write. Everything that it wrote before lies
//     below the fence, and is read before the first event is counted.
//   - The shard changes only under the partition's lock. Each change is followed by outbox.perform,
//     which queues its effects before the lock is released.
//   - A verdict is sent only after the state that it follows from is durable. An offset is released
//     to the group only after everything that its events caused is durable.
//   - After an error nothing more is written. The next owner replays what was not durable.
//
// Locks: a Partition has one, core.mu, and the shard is under it. Only the partition's own
// goroutine, which calls Process, holds it for long; all others work in slices of half a
// millisecond. Nothing waits for Kafka while it is held: output is queued, and acknowledgements are
// queued back. Under it the lock of a fenced writer, of Aux, of a ticket, of acks or of waits may
// be taken; none of these is held while core.mu or another of them is taken.
//
// Units: event.Micros are microseconds since the Unix epoch, by a broker's clock where that is
// known; sizes are bytes; a "next" offset is the first one that is not counted.
package owner
