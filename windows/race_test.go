//go:build race

package windows_test

// The race detector allocates itself.
func init() { raceDetector = true }
