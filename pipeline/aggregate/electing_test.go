package aggregate

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// Once, an instance that was started while the rules' partition changed its leader ended at once,
// and so did a command that reads the group's rules. An operator who restarts brokers one by one
// could not start aggregators meanwhile.
func TestAStartDuringAnElection(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	set, file := withRules(t, ruleFile(5, 0))
	created := func(c *Config) { c.BrokerTime = "create" }
	first := r.begin(set, file, created)
	first.end(t)

	for name, test := range map[string]func(t *testing.T){
		"an instance": func(*testing.T) { r.ready(r.start(set, file, created)) },
		"the group's rules": func(t *testing.T) {
			if _, _, version, err := GroupRules(t.Context(), Config{Brokers: r.brokers, Prefix: r.names.Group, Rules: set}); err != nil || version != 1 {
				t.Errorf("version %d, %v", version, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			left := refuseOffsets(k, r.names.Rules, kerr.NotLeaderForPartition, 6)
			test(t)
			if n := left.Load(); n > 0 {
				t.Errorf("%d refusals were not met", n)
			}
		})
	}
}

// refuseOffsets answers so many requests for a topic's offsets with an error.
func refuseOffsets(k *kfake.Cluster, topic string, why *kerr.Error, times int32) *atomic.Int32 {
	left := new(atomic.Int32)
	left.Store(times)
	k.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		asked := req.(*kmsg.ListOffsetsRequest)
		if asked.Topics[0].Topic != topic {
			return nil, nil, false
		}
		if left.Add(-1) == 0 {
			k.DropControl()
		}
		resp := asked.ResponseKind().(*kmsg.ListOffsetsResponse)
		p := kmsg.NewListOffsetsResponseTopicPartition()
		p.ErrorCode = why.Code
		resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}}}
		return resp, nil, true
	})
	return left
}
