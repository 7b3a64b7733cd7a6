// Package tallygatetest tests a service's limits within the test: the engine in the process, with a clock
// that the test moves. It needs no Kafka and no Redis, starts no goroutine, and takes milliseconds.
//
//	h := tallygatetest.New(t, "rules.yaml")
//	handler := h.Middleware(httplimit.Options{UID: user})(mux)
//	… five requests of user 7 …
//	if !h.Blocked("uid=7", "order.create") { … }
//	h.Advance(time.Minute)
//
// Events are counted by the code of the aggregator, verdicts are enforced by that of the services, and
// permits are granted by the protocol that runs in Redis. What differs: everything that is asynchronous in
// an installation happens at once, so the event after a request is counted before the next request. A test
// of how a service behaves in between, or without Redis, needs an installation: `tallygate dev`.
package tallygatetest
