// Package enforce answers "may this user do this now?" inside a service, from memory.
//
// A Table holds the verdicts that are in force. A feed (package blocklist) keeps it in step with Redis, and while
// Redis is away it goes on enforcing what it has until each verdict has run out. Middleware puts it in front of an
// http.Handler. The package links the standard library and the verdict's types, and nothing else.
package enforce
