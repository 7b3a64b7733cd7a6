package servers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// KafkaCluster is a Kafka of several nodes of the test's own, each broker and controller at once.
// Its internal topics have a replica on each node, and min.insync.replicas of new topics is one
// less than there are nodes.
type KafkaCluster struct{ Nodes []*KafkaProc }

// StartKafkaCluster starts the nodes at once, since a controller that is alone waits for the
// others. It takes some 10 s. See StartKafka for props and when the test is skipped, and
// StartKafkaBehind for the listeners, which are one list for each node, or none at all.
func StartKafkaCluster(t testing.TB, nodes int, props map[string]string, behind ...[]Listener) *KafkaCluster {
	t.Helper()
	Kafka(t)
	replicas := strconv.Itoa(nodes)
	voters := make([]string, nodes)
	controllers := make([]int, nodes)
	ports := nodePorts(t, 2*nodes)
	for i := range nodes {
		controllers[i] = ports[2*i]
		voters[i] = fmt.Sprintf("%d@127.0.0.1:%d", i+1, controllers[i])
	}
	all := map[string]string{
		"controller.quorum.voters": strings.Join(voters, ","), "default.replication.factor": replicas,
		"min.insync.replicas": strconv.Itoa(max(1, nodes-1)), "offsets.topic.replication.factor": replicas,
		"transaction.state.log.replication.factor": replicas, "transaction.state.log.min.isr": strconv.Itoa(max(1, nodes-1)),
		"share.coordinator.state.topic.replication.factor": replicas, "controller.quorum.election.timeout.ms": "500",
		"controller.quorum.fetch.timeout.ms": "1000", "replica.lag.time.max.ms": "2000", "leader.imbalance.check.interval.seconds": "5",
	}
	maps.Copy(all, props)
	c := &KafkaCluster{}
	for i := range nodes {
		all["node.id"] = strconv.Itoa(i + 1)
		var own []Listener
		if len(behind) > 0 {
			own = behind[i]
		}
		env := append(kafkaEnv(all, own), "KAFKA_HEAP=320m", "KAFKA_SESSION=3000", quickJava, "KAFKA_CLUSTER_ID=TallygateTestCluster01")
		p := &KafkaProc{newProc(t, "kafka.sh", env...)}
		for name, port := range map[string]int{"controller": controllers[i], "port": ports[2*i+1]} {
			if err := os.WriteFile(filepath.Join(p.dir, name), []byte(strconv.Itoa(port)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.Nodes = append(c.Nodes, p)
	}
	c.Start(c.Nodes...)
	return c
}

// Start starts nodes of the cluster at once, and returns when all of them answer.
func (c *KafkaCluster) Start(nodes ...*KafkaProc) {
	c.Nodes[0].t.Helper()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			out, err := n.command("start", n.dir)
			if err != nil {
				errs[i] = fmt.Errorf("start node %s: %w\n%s", n.dir, err, out)
				return
			}
			n.addr = strings.TrimSpace(out)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			c.Nodes[0].t.Fatal(err)
		}
	}
}

// Addrs are the nodes' addresses.
func (c *KafkaCluster) Addrs() (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// nodePorts are different free ports.
func nodePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		ports = append(ports, portWithBus(t))
	}
	return ports
}
