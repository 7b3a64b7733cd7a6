//go:build amd64 || arm64

package state

// prefetch asks for the memory of n bytes from p on, and does not wait for it. It affects only time. To read a byte of
// each cache line would do the same, but a processor goes on for some hundred instructions only before a read that
// has not got its memory.
//
//go:noescape
func prefetch(p *byte, n int)
