package aggregate

import (
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// A broker holds a join back while another member is missed. Who is told to stop meanwhile does not wait for that: it
// took up to the session timeout.
func TestWhoIsToldToStopWaitsForNoJoin(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	for _, instance := range []string{"", "a1"} {
		k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SleepOutOfOrder())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		asked, answer := make(chan struct{}), make(chan struct{})
		t.Cleanup(sync.OnceFunc(func() { close(answer) })) // before k is closed
		var once sync.Once
		k.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
			k.KeepControl()
			once.Do(func() { close(asked) })
			k.SleepControl(func() { <-answer })
			return nil, nil, false
		})
		r := newRig(t, k.ListenAddrs())
		m := r.start(compile(t, yearly), func(c *Config) {
			c.BrokerTime, c.InstanceID = "create", instance
			c.Kafka = func(s *sarama.Config) { s.Net.ReadTimeout = 10 * time.Minute }
		})
		<-asked
		m.end(t) // the join is answered only when the test is over
	}
}
