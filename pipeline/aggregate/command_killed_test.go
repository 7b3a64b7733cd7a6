package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
)

// oneBatch is a network that, once it is narrow, lets one batch for a partition through. Each
// further one breaks its connection.
type oneBatch struct {
	mu        sync.Mutex
	topic     string // of a narrow one
	partition int32
	left      int // batches that may pass
}

func (n *oneBatch) narrow(topic string, partition int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.topic, n.partition, n.left = topic, partition, 1
}

func (n *oneBatch) wide() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.topic = ""
}

// passes reports whether a request to produce may pass.
func (n *oneBatch) passes(request []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.topic == "" || !n.appends(request) {
		return true
	}
	n.left--
	return n.left >= 0
}

// appends reports whether a request appends to the partition, perhaps among others.
func (n *oneBatch) appends(request []byte) bool {
	header := 14 + int(binary.BigEndian.Uint16(request[12:])) // size, api, version, correlation, client id
	p := kmsg.ProduceRequest{Version: int16(binary.BigEndian.Uint16(request[6:]))}
	if p.ReadFrom(request[header:]) != nil {
		return false
	}
	return slices.ContainsFunc(p.Topics, func(t kmsg.ProduceRequestTopic) bool {
		return t.Topic == n.topic && slices.ContainsFunc(t.Partitions, func(p kmsg.ProduceRequestTopicPartition) bool { return p.Partition == n.partition })
	})
}

func (n *oneBatch) Dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	return &breaking{conn, n}, nil
}

type breaking struct {
	net.Conn
	n *oneBatch
}

// Write is of one request: its size, what it asks for, and so on.
func (c *breaking) Write(p []byte) (int, error) {
	if len(p) > 6 && binary.BigEndian.Uint16(p[4:]) == uint16(kmsg.Produce) && !c.n.passes(p) {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// An owner that ends in the middle of a command of many keys leaves it half done. It reports of how
// many keys, and that it must be repeated; the repetition does the rest.
func TestACommandThatIsInterruptedIsGivenAgain(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		network := &oneBatch{}
		m := r.begin(compile(t, byCampaign), func(c *Config) {
			c.CheckpointEvery = time.Hour
			c.Kafka = func(s *sarama.Config) { s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, network }
		})
		const campaigns = 3000
		var list []string // which no single batch has room for
		for i := range campaigns {
			list = append(list, fmt.Sprintf("c%d-%s", i, strings.Repeat("x", 150)))
		}
		p := m.partition(m.Partition(uidKey("u1")))
		eventually(t, "all keys are judged", func() (all bool) {
			p.View(func(s *shard.Shard, _ *owner.Rules) { all = s.AllJudged() })
			return all
		})
		told := regexp.MustCompile(`is durable on (\d+) of 3001 keys, and may be on more: repeat it`)
		r.emit(shown("u1", list...)...)
		eventually(t, "all are counted, and the changelog is quiet", func() bool {
			return r.count("u1", "per-year", m) >= campaigns*event.One && len(r.inForceOn("uid=u1")) > 0
		})
		network.narrow(r.names.Table, p.ID())
		failed := make(chan error, 1)
		go func() {
			_, err := m.Command(t.Context(), Command{Name: "forget", Key: uidKey("u1"), Reason: "a test", By: "tester"})
			failed <- err
		}()
		eventually(t, "it is done on some of the keys", func() bool {
			left, ok := p.InFlight()
			return ok && left <= campaigns
		})
		p.Fail(errors.New("killed by the test"))
		err := <-failed
		network.wide()
		if err == nil || told.FindStringSubmatch(err.Error()) == nil {
			t.Fatalf("an interrupted command: %v", err)
		}
		n, _ := strconv.Atoi(told.FindStringSubmatch(err.Error())[1])
		if n < 1 || n > campaigns {
			t.Errorf("it is done on %d of %d keys", n, campaigns+1)
		}
		t.Log(err)
		eventually(t, "it is taken over", func() bool { q := m.partition(p.ID()); return q != nil && q != p && q.Opened() })
		// Events that no checkpoint covers are counted again, and then a command that came before
		// them would not apply to them.
		r.quiet(m)
		eventually(t, "it is given again", func() bool {
			_, err := m.Command(t.Context(), Command{Name: "forget", Key: uidKey("u1"), Reason: "a test", By: "tester"})
			return err == nil
		})
		if got := r.namedIn("uid=u1"); len(got) > 0 {
			t.Errorf("the verdict topic names u1 in %q", got)
		}
		for _, campaign := range list {
			if e := r.standing(m, campaignKey("u1", campaign), "per-campaign"); e.Count != 0 {
				t.Fatalf("%s has counted %v", campaign, e.Count)
			}
		}
	})
}
