// Package httplimit puts an enforce.Table in front of net/http handlers.
//
// Middleware denies requests that come under a verdict, and emits an event for each of the others.
// Options names who sends a request and what it does. Header, Cookie and ContextValue find a user;
// ClientIP finds an address that clients cannot forge; RouteAPI, PatternAPI and MuxAPI name the
// API. Adapters for other routers call Gate.Enter and Passage.Done.
//
// The package links package enforce and the standard library.
package httplimit
