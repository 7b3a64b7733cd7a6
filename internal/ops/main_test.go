package ops_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The meter is sarama's, of the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
