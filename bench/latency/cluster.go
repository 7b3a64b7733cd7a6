package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/internal/testing/freeport"
)

// cluster is several brokers of the benchmark's own. Programs reach them by wires, which the brokers advertise,
// and the brokers reach each other by others: to a program it is a cluster in the distance, and to the brokers
// their replicas are.
type cluster struct {
	near, far []string // the brokers' addresses, without and with the wires of the programs
	trip      atomic.Int64
	replicas  atomic.Int64 // the round trip between brokers
	dirs      []string
	embedded  *kfake.Cluster
}

// quickJava makes the best of brokers that live for minutes, on few cores.
const quickJava = "KAFKA_JAVA=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// startCluster starts brokers with their data below dir.
func startCluster(dir string, brokers int) (c *cluster, err error) {
	c = &cluster{}
	const each = 5 // ports: controller, and a near, a far and two brokers' addresses
	ports, err := freeport.Ports(brokers * each)
	if err != nil {
		return nil, err
	}
	address := func(node, which int) string { return "127.0.0.1:" + strconv.Itoa(ports[node*each+which]) }
	voters := make([]string, brokers)
	for i := range brokers {
		voters[i] = fmt.Sprintf("%d@%s", i+1, address(i, 0))
	}
	var starting sync.WaitGroup
	failed := make([]error, brokers)
	for i := range brokers {
		far, err := lay("127.0.0.1:0", address(i, 2), &c.trip)
		if err != nil {
			return c, err
		}
		between, err := lay(address(i, 4), address(i, 3), &c.replicas)
		if err != nil {
			return c, err
		}
		c.near, c.far = append(c.near, address(i, 1)), append(c.far, far.addr)
		node := filepath.Join(dir, "kafka-"+strconv.Itoa(i+1))
		c.dirs = append(c.dirs, node)
		err = errors.Join(os.MkdirAll(node, 0o700), os.WriteFile(filepath.Join(node, "controller"), []byte(strconv.Itoa(ports[i*each])), 0o600))
		if err != nil {
			return c, err
		}
		cmd := exec.Command("scripts/kafka.sh", "start", node, strconv.Itoa(ports[i*each+1]))
		cmd.Env = append(os.Environ(), "KAFKA_HEAP=400m", quickJava, "KAFKA_CLUSTER_ID=TallygateLatencyBench1",
			"KAFKA_LISTENERS=FAR://"+address(i, 2)+",BROKERS://"+address(i, 3),
			"KAFKA_ADVERTISED=FAR://"+far.addr+",BROKERS://"+between.addr,
			"KAFKA_EXTRA="+properties(i+1, brokers, strings.Join(voters, ",")))
		cmd.Stderr = os.Stderr
		starting.Go(func() {
			if err := cmd.Run(); err != nil {
				failed[i] = fmt.Errorf("start broker %d: %w", i+1, err)
			}
		})
	}
	starting.Wait()
	return c, errors.Join(failed...)
}

func properties(node, brokers int, voters string) string {
	return strings.Join([]string{
		"node.id=" + strconv.Itoa(node), "controller.quorum.voters=" + voters,
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT,BROKERS:PLAINTEXT",
		"inter.broker.listener.name=BROKERS",
		"default.replication.factor=" + strconv.Itoa(brokers),
		"min.insync.replicas=" + strconv.Itoa(max(1, brokers-1)),
		"offsets.topic.replication.factor=" + strconv.Itoa(brokers),
		"transaction.state.log.replication.factor=" + strconv.Itoa(brokers),
	}, "\n")
}

// advertised is a listener that its broker tells its clients of by another address.
type advertised struct {
	net.Listener
	addr net.Addr
}

func (a advertised) Addr() net.Addr { return a.addr }

// embedCluster starts brokers within this process. They take next to no time and wait for no replicas: what is
// left is how often something crosses the wires, and waits for what went before.
func embedCluster(brokers int) (c *cluster, err error) {
	c = &cluster{}
	embedded, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.GroupMinSessionTimeout(time.Second), kfake.ListenFn(func(network, _ string) (net.Listener, error) {
		l, err := net.Listen(network, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		w, err := lay("127.0.0.1:0", l.Addr().String(), &c.trip)
		if err != nil {
			return nil, err
		}
		addr, err := net.ResolveTCPAddr("tcp", w.addr)
		return advertised{l, addr}, err
	}))
	if err != nil {
		return c, fmt.Errorf("start the embedded brokers: %w", err)
	}
	c.embedded = embedded
	c.far = embedded.ListenAddrs()
	c.near = c.far
	return c, nil
}

func (c *cluster) stop() {
	if c.embedded != nil {
		c.embedded.Close()
	}
	for _, dir := range c.dirs {
		_ = exec.Command("scripts/kafka.sh", "kill9", dir).Run() // its data goes as well
	}
}

// set makes the wires as long as that, for what is sent from now on.
func (c *cluster) set(roundTrip, replicas time.Duration) {
	c.trip.Store(int64(roundTrip))
	c.replicas.Store(int64(replicas))
}

// forget deletes the topics of a run: what replicas ask for takes longer with each partition there is.
func (c *cluster) forget(prefix string) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin(c.near, cfg)
	if err != nil {
		return fmt.Errorf("delete the topics of a run: %w", err)
	}
	defer admin.Close()
	all, err := admin.ListTopics()
	for name := range all {
		if strings.HasPrefix(name, prefix) {
			err = errors.Join(err, admin.DeleteTopic(name))
		}
	}
	return err
}
