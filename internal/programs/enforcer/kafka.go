package enforcer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tallygate/tallygate/internal/run/kafkaconn/options"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/admit"
)

// Events opens what sends the events of requests to Kafka, by the program's Prefix, Log and Registry; end sends what
// is left of them.
type Events func(*Program) (events admit.Emitter, end func(), err error)

// Kafka checks the options for Kafka, of which this package only knows the names: it links no client.
type Kafka func(*options.Options) (Events, error)

var errNoKafka = errors.New("this program has no client of Kafka")

// withKafka is the same program with a client of Kafka. Packages and images have both, side by side.
const withKafka = "enforcer-kafka"

// handOver replaces the process by enforcer-kafka, so that units and images start enforcer whatever its options
// are. It returns only if that is not there, or on Windows, where a process cannot be replaced.
func handOver(args []string) error {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err == nil {
		other := filepath.Join(filepath.Dir(self), withKafka)
		err = syscall.Exec(other, append([]string{other}, args...), os.Environ())
		err = &os.PathError{Op: "run", Path: other, Err: err}
	}
	return &ops.UsageError{Err: fmt.Errorf("options that emit events are for the program %s, which has a client of Kafka: %w; run it instead", withKafka, err)}
}
