// Package conformance tests what all adapters do alike. It is a module of its own, so that no adapter
// carries what only these tests need.
package conformance
