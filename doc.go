// Package tallygate guards a service by the limits of an installation of Tallygate: one constructor for
// what a service needs, put together as it has to be.
//
//	guard, err := tallygate.Open(ctx, tallygate.Config{Redis: "rediss://shop@redis:6379", Kafka: []string{"kafka:9092"}})
//	…
//	defer guard.Close(ctx)
//	handler := guard.Middleware(httplimit.Options{UID: user})(mux)
//
// A Guard keeps the blocklist of Redis in memory, answers checks from there in nanoseconds, and sends
// events to Kafka in the background. Redis and Kafka may be away: it goes on with what it knows, says so
// in the log, and catches up.
//
// Its parts are packages of their own, for services that need only some of them or put them together
// otherwise: pipeline/enforce (the table), pipeline/enforce/httplimit and grpclimit (middleware),
// pipeline/blocklist (the feed), pipeline/emit (the emitter) and pipeline/admit (permits of strict rules).
package tallygate
