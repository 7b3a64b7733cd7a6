// Package protocol decides strict limits: the count of a window, together with the permits under way, never exceeds
// the limit. It is pure: no I/O, clock, goroutine or lock.
//
// # Who takes part
//
// An enforcer asks for a permit before an action. A shard, which is one script in Redis, grants it
// if the key's level, its unsettled permits and the new amount fit the limit. The action's event
// carries the permit. The owner of the key's partition counts the event, and publishes the key's
// level: what is counted, how it fades, and the permits that it settles. The publisher brings
// levels to the shard, in the order of the verdict topic. One script call replaces a level and
// removes the permits that it settles: at no moment is an action in neither.
//
// # What is here
//
//   - [Level] is what owners publish, and [Level.Merge] what a publisher may coalesce.
//   - [Memory] is what a shard keeps, and its three calls. The scripts in Redis do the same; a test
//     asks both the same questions.
//   - [Request] is the enforcer's side of one request: when to ask again, and what to cancel.
//   - [Warden] is the publisher's side: up to when everything has been settled, and which Redis may
//     grant permits, until when.
//
// The simulation in this package's tests runs them against a network, clocks and machines that
// fail in every way that we know of, and checks the guarantee at each step. Each rule of the
// protocol can be switched off there, and then a seed breaks the guarantee.
//
// # The clock of a shard
//
// Redis' TIME may jump. [Memory] makes a clock of it that never goes back and never stands still:
// the greater of TIME, and of where the clock stood plus 0.9 times what TIME advanced. A key's
// clock is not behind what its level has counted either. Permits carry the key's clock of the
// moment when they were granted, and that is the time that their events count at: an action that
// begins before midnight belongs to the day that admitted it.
package protocol
