package replay

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Sarama's, for good.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
