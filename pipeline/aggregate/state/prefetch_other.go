//go:build !amd64 && !arm64

package state

// prefetch does nothing here: what is needed is read when it is needed.
func prefetch(*byte, int) {}
