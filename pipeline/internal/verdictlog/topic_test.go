package verdictlog

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// connections are a transport's, some of which the broker has closed meanwhile.
type connections struct {
	closed int
	asked  int
}

func (c *connections) RoundTrip(context.Context, net.Addr, kafka.Request) (kafka.Response, error) {
	if c.asked++; c.asked <= c.closed {
		return nil, io.ErrUnexpectedEOF
	}
	return &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: "v", Partitions: []fetch.ResponsePartition{{
		HighWatermark: 7, RecordSet: protocol.RecordSet{Records: protocol.NewRecordReader()}}}}}}, nil
}

// A broker that ends sessions (connections.max.reauth.ms) closed the connection every half minute, and the log had an
// error each time.
func TestAConnectionThatTheBrokerClosedIsNoOutage(t *testing.T) {
	for closed, want := range map[int]error{0: nil, 2: nil, 9: io.ErrUnexpectedEOF} {
		c := &connections{closed: closed}
		topic := &Topic{Client: &kafka.Client{Addr: kafka.TCP("k:1"), Transport: c}, Name: "v"}
		f, err := topic.Fetch(t.Context(), 0, 7, time.Millisecond)
		if !errors.Is(err, want) || err == nil && f.End != 7 {
			t.Errorf("after %d closed connections: %+v, %v", closed, f, err)
		}
		if c.asked > 3 {
			t.Errorf("%d attempts", c.asked)
		}
	}
}
