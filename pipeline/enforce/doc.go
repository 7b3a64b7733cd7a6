// Package enforce answers "may this user do this now?" inside a service, from memory.
//
// A Table holds the verdicts in force. A feed of package blocklist keeps it in step with Redis.
// While Redis is unreachable the table still enforces what it has, each verdict until its end.
// Package httplimit puts a table in front of an http.Handler. This package links the standard
// library and the verdict's types, and nothing else.
package enforce
