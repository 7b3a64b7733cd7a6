package console

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/access"
)

// letterTopic is a Kafka with the dead-letter topic, into which letters of three kinds are written, one of them
// twice, as after a crash.
func letterTopic(t *testing.T) *kfake.Cluster {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "tallygate.dead-letters", "tallygate.events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write := func(age time.Duration, reason, detail, producer string, offset int, value string) {
		r := &kgo.Record{Topic: "tallygate.dead-letters", Value: []byte(value), Timestamp: time.Now().Add(-age)}
		for _, h := range [][2]string{{"reason", reason}, {"detail", detail}, {"topic", "tallygate.events"}, {"partition", "1"}, {"offset", fmt.Sprint(offset)}, {"header:tg-c", producer}} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
		if err := c.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		write(time.Hour, "time", `time: "tomorrow" is no time`, "shop-php", n, `{"uid":"alice","api":"login","time":"tomorrow"}`)
	}
	write(time.Hour, "time", `time: "tomorrow" is no time`, "shop-php", 4, `{"uid":"alice","api":"login","time":"tomorrow"}`)
	write(time.Minute, "not-json", "no JSON", "<script>alert(1)</script>", 9, "uid=bob")
	write(48*time.Hour, "no-api", "an old one", "old", 1, "{}")
	return k
}

func TestDataQuality(t *testing.T) {
	s := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Viewer, workbench.Config{})
	s.rules.letters.kafka = kafkaAt(letterTopic(t).ListenAddrs()...)
	s.now = time.Now()
	page := s.get("/quality", http.StatusOK)
	s.has(page, "counted", "too late for a window", "<code>&lt;img src=x&gt;</code>", "Of 2 aggregators, each since it began", "agg-2 did not answer, so what it has seen is missing here: it has not answered within 1.2s", "serch.query", "did you mean &#34;search.query&#34;?", "rules count this API, with other outcomes", "these have no uid: rules by user pass them over",
		"6 records", "<code>time</code>", "<code>shop-php</code>", `{&#34;uid&#34;:&#34;•••&#34;,&#34;api&#34;:&#34;login&#34;,&#34;time&#34;:&#34;•••&#34;}`, "time: ••• is no time", "tallygate.events/1@4", "tallygate dead-letters --send")
	s.lacks(page, "alice", "bob", "tomorrow", "<script>alert", "<img src=x>", "no-api")
	if strings.Index(page, "shop-php") > strings.Index(page, "not-json") {
		t.Error("the most frequent letters are not first")
	}
}

// Without Kafka the page has all that the aggregators say, and says what is missing.
func TestDataQualityWithoutKafka(t *testing.T) {
	t.Parallel()
	hole, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := hole.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			asked.Add(1)
		}
	})
	defer accepting.Wait()
	defer hole.Close()
	s := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Viewer, workbench.Config{})
	s.has(s.get("/quality", http.StatusOK), "no Kafka is configured", "counted")
	s.rules.letters.kafka = kafkaAt(hole.Addr().String())
	s.has(s.get("/quality", http.StatusOK), "read the dead letters", "counted", "serch.query")
	before := asked.Load()
	s.get("/quality", http.StatusOK)
	if again := asked.Load() - before; before == 0 || again != 0 {
		t.Errorf("Kafka is asked %d times, and %d times again at once", before, again)
	}
}
