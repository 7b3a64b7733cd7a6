// Package apidocs has the descriptions of the interfaces to other programs that machines read: OpenAPI of
// the HTTP APIs, AsyncAPI of the topics, and JSON Schemas of what they carry. Tests hold the servers'
// answers against them.
package apidocs

import "embed"

// Files are the descriptions, by their names.
//
//go:embed *.json *.yaml
var Files embed.FS

// The schemas, by what they describe.
const (
	Event        = "event.schema.json"
	Verdict      = "verdict.schema.json"
	Audit        = "audit.schema.json"
	DeadLetter   = "dead-letter.schema.json"
	Problem      = "problem.schema.json"
	Status       = "status.schema.json"
	Notification = "notification.schema.json"
)

// The documents.
const (
	Enforcer   = "openapi-enforcer.yaml"
	Aggregator = "openapi-aggregator.yaml"
	Topics     = "asyncapi.yaml"
)
