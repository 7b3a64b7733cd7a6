package ops_test

import (
	"io"
	"testing"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A test that gives no address listens on any port, and connects to nobody: what has its default address may be
// somebody's.
func TestACommandInATestUsesNoDefaultAddress(t *testing.T) {
	for about, c := range map[string]struct {
		getenv                                            func(string) string
		args                                              []string
		kafka, aggregator, url, listen, grpc, none, plain string
	}{
		"nothing is given": {testrun.NoEnv, nil, "127.0.0.1:1", "127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1:0", "127.0.0.1:0", "none", "x:y"},
		"what is given stays": {
			testrun.Env(map[string]string{"TALLYGATE_KAFKA": "k:9092"}), []string{"--listen", "127.0.0.1:8080"},
			"k:9092", "127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1:8080", "127.0.0.1:0", "none", "x:y",
		},
		"a process of its own": {testrun.Getenv, nil, "127.0.0.1:1", "127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1:0", "127.0.0.1:0", "none", "x:y"},
		"no test":              {nobody, nil, "127.0.0.1:9092,127.0.0.1:9093", "127.0.0.1:8081", "https://localhost:1234", "127.0.0.1:8080", ":8081", "none", "x:y"},
	} {
		t.Run(about, func(t *testing.T) {
			o := ops.NewOptions("test", "", io.Discard, c.getenv)
			kafka := o.List("kafka", []string{"127.0.0.1:9092", "127.0.0.1:9093"}, "")
			aggregator, url := o.String("aggregator", "127.0.0.1:8081", ""), o.String("url", "https://localhost:1234", "")
			listen, grpc := o.String("listen", "127.0.0.1:8080", ""), o.String("grpc-listen", ":8081", "")
			none, plain := o.String("metrics-listen", "none", ""), o.String("plain", "x:y", "")
			if err := o.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			got := [...]string{kafka.String(), *aggregator, *url, *listen, *grpc, *none, *plain}
			if want := [...]string{c.kafka, c.aggregator, c.url, c.listen, c.grpc, c.none, c.plain}; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func nobody(name string) (value string) { return }
