// Package api has the HTTP API of an aggregator, for programs that ask it: the type of every answer and of every
// body, one file a path, and a Client. Servers, clients and the OpenAPI document share these types.
//
// Fields are added from one minor version to the next: ignore what you do not know. A field with omitempty is
// absent when its value is zero.
package api
