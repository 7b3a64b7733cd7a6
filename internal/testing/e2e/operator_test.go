package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// What an operator may do to a running engine, by mistake or on purpose.

func (r *rig) putEach(uids, n int) {
	r.t.Helper()
	var msgs []*sarama.ProducerMessage
	for i := range uids * n {
		uid := fmt.Sprintf("u%d", i%uids)
		msgs = append(msgs, r.record(uid, fmt.Sprintf(`{"api":"search.query","uid":%q}`, uid)))
	}
	r.put(msgs)
}

// ended waits until a program has given up, and returns its exit status.
func (p *Process) ended() int {
	p.t.Helper()
	eventually(p.t, p.name+" ends", func() bool { return !p.Running() })
	return p.cmd.ProcessState.ExitCode()
}

// Two instances of one name would evict each other without end.
func TestDuplicateInstanceID(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := newRig(t, searches)
	elder := r.aggregator("elder", "--instance-id", "same").Start().Ready()
	younger := r.aggregator("younger", "--instance-id", "same").Start()
	if status := elder.ended(); status != 1 || !strings.Contains(elder.Logs(), `instance id \"same\"`) && !strings.Contains(elder.Logs(), `instance id "same"`) {
		t.Errorf("the elder exits with %d", status)
	}
	younger.Ready()
	r.putEach(100, 5)
	r.caughtUp()
	newModel(r).compareCounters(t, uidKeys("u1", "u50", "u99"), younger)
}

// In a topic that was created anew, offsets start below everything that is known: it must not
// be skipped in silence.
func TestRecreatedTopic(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := newRig(t, searches)
	p := r.aggregator("a").Start().Ready()
	r.putEach(100, 3)
	r.caughtUp()
	if status := p.Stop(); status != 0 {
		t.Errorf("exits with %d", status)
	}
	if err := r.admin.DeleteTopic(r.names.Events); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic is created anew", func() bool {
		_, err := topics.Ensure(t.Context(), r.brokers, saramaConfig(), topics.Config{Prefix: r.prefix, Partitions: r.partitions})
		return err == nil
	})
	if err := r.client.RefreshMetadata(r.names.Events); err != nil {
		t.Fatal(err)
	}
	if status := p.Start().ended(); status != 1 || !strings.Contains(p.Logs(), "--accept-new-topic") {
		t.Errorf("exits with %d", status)
	}
	r.putEach(100, 1)
	p.args = append(p.args, "--accept-new-topic")
	p.Start().Ready()
	var msgs []string
	for i := range 100 {
		msgs = append(msgs, fmt.Sprintf("u%d", i))
	}
	eventually(t, "old and new events are counted", func() bool {
		for _, uid := range msgs { // each partition in its own time
			reply, err := explainKey(p, "uid="+uid)
			if err != nil || reply.list[0].Count.String() != "4" {
				return false
			}
		}
		return true
	})
	d := differencesOf("counts")
	explain(t, uidKeys(msgs...), func(key string, reply explainReply) {
		if d.compared(); reply.list[0].Count.String() != "4" {
			d.add("%s has %v", key, reply.list[0].Count)
		}
	}, p)
	d.report(t)
}

// Another region has a Redis of its own, filled by a publisher that counts nothing.
func TestPublishOnly(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := newRig(t, searches)
	r.aggregator("a").Start().Ready()
	r.putEach(300, 5)
	region := r.aggregator("region", "--publish-only", "--redis-db", "1")
	region.Start()
	r.caughtUp()
	r.compareRedis(newModel(r).compareVerdicts(r))

	region.Signal(syscall.SIGHUP) // it has no rules to read again, and goes on
	far := r.in(t)
	far.redis = redis.NewClient(&redis.Options{Addr: r.redisAddr, DB: 1})
	t.Cleanup(func() { far.dropKeys(); _ = far.redis.Close() })
	far.compareRedis(readVerdicts(r))
	r.putEach(500, 5)
	r.caughtUp()
	far.compareRedis(readVerdicts(r))
	if status := region.Stop(); status != 0 {
		t.Errorf("the publisher exits with %d", status)
	}
}
