// Package aggregate turns the event topic into counts and verdicts, exactly once.
//
// One Aggregator is a member of a Kafka consumer group, run by goka; every partition that it
// owns has its keys' state in memory, a changelog it is recovered from, and a writer that no
// former owner can interfere with. DESIGN.md of the project tells how counts survive crashes,
// zombies and rebalances.
package aggregate
