package event

import "unsafe"

// sharedString returns b's bytes as a string without copying them: b must not change while the
// string is in use.
func sharedString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
