package auditlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// written is an audit topic of its own Kafka, into which a test writes.
type written struct {
	t       *testing.T
	brokers []string
	client  *kgo.Client
	cluster *kfake.Cluster
}

func kafka(t *testing.T) *written {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &written{t, k.ListenAddrs(), c, k}
}

func (w *written) write(at time.Time, key, value string) {
	w.t.Helper()
	r := &kgo.Record{Topic: "audit", Key: []byte(key), Value: []byte(value), Timestamp: at}
	if err := w.client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *written) command(at time.Time, n int) {
	w.t.Helper()
	w.write(at, fmt.Sprint("uid=", n), fmt.Sprintf(`{"type":"command","at":%q,"by":"ann","command":"unblock","key":"uid=%d","reason":"r","id":"c%[2]d"}`, at.UTC().Format(time.RFC3339), n))
}

func (w *written) config() kafkalog.Config { return kafkalog.Config{Brokers: w.brokers} }

// It begins a day back, reads what was there, and what comes; what cannot be read is counted.
func TestFollow(t *testing.T) {
	k := kafka(t)
	now := time.Now()
	k.command(now.Add(-48*time.Hour), 1)
	for n := range 20 {
		k.command(now.Add(-time.Hour), 10+n)
	}
	f, err := NewFollower(FollowConfig{Kafka: k.config(), Topic: "audit", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer testrun.Start(t, f.Run)()
	testrun.Eventually(t, "the day before", func() bool { return f.Health().Entries == 20 && f.Health().Behind == 0 })
	if h := f.Health(); h.From.After(now.Add(-24*time.Hour+time.Minute)) || h.Trouble != nil {
		t.Errorf("%+v", h)
	}
	k.write(now, "x", "this is no entry")
	k.command(now, 99)
	testrun.Eventually(t, "what came", func() bool { return f.Health().Entries == 21 && f.Health().Bad == 1 })
	if got := ids(find(t, f, Filter{}, "", 1)); got[0] != "c99" {
		t.Errorf("the newest is %v", got)
	}
}

// A topic that is not there yet is waited for; Kafka that is gone is said to be.
func TestFollowWithoutATopic(t *testing.T) {
	k := kafka(t)
	f, err := NewFollower(FollowConfig{Kafka: k.config(), Topic: "other", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer testrun.Start(t, f.Run)()
	testrun.Eventually(t, "it says why", func() bool {
		h := f.Health()
		return h.Trouble != nil && strings.Contains(h.Trouble.Error(), "there is no topic other") && h.From.IsZero()
	})
}

func TestFollowSaysThatKafkaIsGone(t *testing.T) {
	k := kafka(t)
	k.command(time.Now(), 1)
	f, err := NewFollower(FollowConfig{Kafka: k.config(), Topic: "audit", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer testrun.Start(t, f.Run)()
	testrun.Eventually(t, "it follows", func() bool { return f.Health().Entries == 1 })
	k.cluster.Close()
	testrun.Eventually(t, "it says that it does not", func() bool { return f.Health().Trouble != nil })
	if got := ids(find(t, f, Filter{}, "", 9)); len(got) != 1 {
		t.Errorf("what it had is %v", got)
	}
}

// Older spans are read from the topic.
func TestScan(t *testing.T) {
	k := kafka(t)
	now := time.Now().Truncate(time.Second)
	for n := range 30 {
		if n == 2 {
			k.write(now.Add(-70*time.Hour), "x", "this is no entry")
		}
		k.command(now.Add(-time.Duration(72-n)*time.Hour), n)
	}
	from, to := now.Add(-71*time.Hour), now.Add(-60*time.Hour)
	log, err := Open(t.Context(), k.config(), "audit", from, to)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var got []string
	bad, told := 0, false
	s := Scan{Filter: Filter{From: from, To: to}, Each: func(r *Record) error { got = append(got, r.ID); return nil },
		Bad: func(int32, int64, error) { bad++ }, Progress: func(int64, int64) { told = true }}
	if err := s.Run(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if len(got) != 11 || got[0] != "c1" || got[10] != "c11" || bad != 1 || !told {
		t.Errorf("%v, %d bad, progress %v", got, bad, told)
	}
}

// What is older than memory is read from the topic, the newest first, page by page.
func TestOlder(t *testing.T) {
	k := kafka(t)
	now := time.Now().Truncate(time.Second)
	for n := range 40 {
		k.command(now.Add(-time.Duration(80-n)*time.Hour), n)
	}
	f, err := NewFollower(FollowConfig{Kafka: k.config(), Topic: "audit", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	want := Filter{From: now.Add(-70 * time.Hour), To: now.Add(-50 * time.Hour)}
	var got []string
	for after, n := "", 0; ; n++ {
		part, err := f.Older(t.Context(), want, after, 8)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(part.Found)...)
		if after = part.Next; after == "" {
			if !part.Done || !part.Back.Equal(want.From) {
				t.Errorf("it ends at %v, done: %v", part.Back, part.Done)
			}
			break
		}
	}
	var all []string
	for n := 29; n >= 10; n-- {
		all = append(all, fmt.Sprint("c", n))
	}
	if fmt.Sprint(got) != fmt.Sprint(all) {
		t.Errorf("%v, want %v", got, all)
	}
	late, cancel := context.WithDeadline(t.Context(), now.Add(-time.Second))
	defer cancel()
	part, err := f.Older(late, want, "", 8)
	if err != nil || part.Done || part.Next == "" || !part.Back.Equal(want.To) {
		t.Errorf("without time: %+v, %v", part, err)
	}
	if _, err := f.Older(t.Context(), want, "x", 8); err == nil {
		t.Error("x is taken for a place")
	}
}
