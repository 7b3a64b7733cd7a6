//go:build race

package windows_test

// The race detector makes a walk through the calendar ten times as slow, and allocates itself.
func init() { civilCases, raceDetector = 20_000, true }
