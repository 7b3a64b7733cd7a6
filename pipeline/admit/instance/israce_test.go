//go:build race

package instance_test

const raceEnabled = true
