//go:build race

package kafkalog

func init() { raceDetector = true }
