package kafkalog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What was aborted is not read, nor what is not committed yet: an aggregator counts neither.
func TestOnlyWhatIsCommittedIsRead(t *testing.T) {
	everyKafka(t, func(t *testing.T, brokers []string) {
		f := run(t, Config{Brokers: brokers})
		topic := servers.Name(t)
		c := client(t, brokers, kgo.TransactionalID(topic))
		createTopic(t, c, topic, 1, nil)
		transaction := func(name string) {
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				rec := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d", name, i)}
				if err := c.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		end := func(how kgo.TransactionEndTry) {
			if err := c.EndTransaction(t.Context(), how); err != nil {
				t.Fatal(err)
			}
		}
		transaction("aborted")
		end(kgo.TryAbort)
		transaction("committed")
		end(kgo.TryCommit)
		transaction("aborted too")
		end(kgo.TryAbort)
		if got, want := merged(t, f, topic, time.Time{}, time.Time{}), []string{"committed 0", "committed 1", "committed 2"}; !slices.Equal(got, want) {
			t.Errorf("read %q", got)
		}
		transaction("open")
		if got, want := merged(t, f, topic, time.Time{}, time.Time{}), []string{"committed 0", "committed 1", "committed 2"}; !slices.Equal(got, want) {
			t.Errorf("beside an open transaction: read %q", got)
		}
		end(kgo.TryCommit)
		// The broker says that it commits, and then writes so into the topic.
		testrun.Eventually(t, "what was committed is read", func() bool {
			return len(merged(t, f, topic, time.Time{}, time.Time{})) == 6
		})
	})
}
