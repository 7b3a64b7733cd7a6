// Package owner is one partition for as long as an instance owns it: it takes the partition over from
// whoever had it before, reads its sources, feeds its shard, carries out what the shard asks for, makes
// checkpoints, and gives it up in good order.
//
// A Partition has one lock, and the shard is under it. Only the partition's own goroutine, which calls
// Process, holds it for long; all others work in slices of half a millisecond. Nothing waits for Kafka
// while it is held: what is to be written is queued, and acknowledgements are queued back.
//
// Locks are taken in this order: the partition's, then a fenced writer's, an Aux's or a ticket's.
package owner
