//go:build race

package windows_test

// The race detector makes a walk through the calendar ten times as slow.
func init() { civilCases = 5_000 }
