package kafkalog

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// farConn brings each answer later.
type farConn struct {
	net.Conn
	by time.Duration
}

func (c farConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.by)
	return n, err
}

// farAway dials a broker at a distance.
func farAway(by time.Duration) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return farConn{c, by}, err
	}
}

// lanesOf counts a topic's readers by lane.
func (f *Fetcher) lanesOf(topic string) (has [manyLanes]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.readers {
		if r.topic == topic {
			has[r.lane]++
		}
	}
	return has
}

// The partitions of a broker that is far away are shared out, those of each topic evenly, and each is read
// once, also behind another leader.
func TestAFarBrokerIsReadOverLanes(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2))
	c := client(t, k.ListenAddrs())
	topics := []string{newTopic(t, c, 8, nil), newTopic(t, c, 8, nil)}
	for _, topic := range topics {
		for p := range int32(8) {
			if err := k.MoveTopicPartition(topic, p, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := run(t, Config{Brokers: k.ListenAddrs(), Dial: farAway(5 * time.Millisecond), Far: 2 * time.Millisecond})
	var all []*Reader
	for p := range int32(8) {
		for _, topic := range topics {
			produce(t, c, topic, p, "a", "b")
			r := f.Read(topic, [16]byte{}, p, 0)
			defer r.Close()
			all = append(all, r)
		}
	}
	for _, r := range all {
		take(t, r, 2)
	}
	for _, topic := range topics {
		if has := f.lanesOf(topic); has != [manyLanes]int{2, 2, 2, 2} {
			t.Errorf("the lanes have %d partitions", has)
		}
		for p := range int32(8) {
			if err := k.MoveTopicPartition(topic, p, p%2); err != nil {
				t.Fatal(err)
			}
			produce(t, c, topic, p, "c")
		}
	}
	for _, r := range all {
		if got := take(t, r, 1); string(got[0].Value) != "c" || got[0].Offset != 2 {
			t.Errorf("%s/%d: %q at %d comes third", r.topic, r.partition, got[0].Value, got[0].Offset)
		}
	}
}

// One partition's records don't wait for the answer to a request that another lane's are in.
func TestLanesDoNotWaitForEachOther(t *testing.T) {
	k := fake(t)
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 2, nil)
	var once sync.Once
	held, letGo := make(chan struct{}), make(chan struct{})
	f := run(t, Config{Brokers: k.ListenAddrs(), Dial: farAway(5 * time.Millisecond), Far: time.Millisecond, MaxWait: time.Minute})
	first, second := f.Read(topic, [16]byte{}, 0, 0), f.Read(topic, [16]byte{}, 1, 0)
	defer first.Close()
	defer second.Close()
	produce(t, c, topic, 0, "a")
	produce(t, c, topic, 1, "a")
	take(t, first, 1)
	take(t, second, 1)
	k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's order
		k.KeepControl()
		if req.(*kmsg.FetchRequest).Topics[0].Partitions[0].Partition == 0 {
			k.SleepControl(func() {
				once.Do(func() { close(held) })
				<-letGo
			})
		}
		return nil, nil, false
	})
	produce(t, c, topic, 0, "b")
	<-held // a request for it
	produce(t, c, topic, 1, "b")
	take(t, second, 1)
	close(letGo)
	take(t, first, 1)
}

// Nearby there is one request at a time for all partitions.
func TestANearBrokerHasOneLane(t *testing.T) {
	k := fake(t)
	c := client(t, k.ListenAddrs())
	topic := newTopic(t, c, 4, nil)
	f := run(t, Config{Brokers: k.ListenAddrs(), Far: time.Minute})
	for p := range int32(4) {
		produce(t, c, topic, p, "a")
		r := f.Read(topic, [16]byte{}, p, 0)
		defer r.Close()
		take(t, r, 1)
	}
	if has := f.lanesOf(topic); has != [manyLanes]int{4} {
		t.Errorf("the lanes have %d partitions", has)
	}
}
