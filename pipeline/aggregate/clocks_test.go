package aggregate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// shiftC shifts a program's wall clock by CLOCK_SHIFT seconds. Go programs do not ask the C library
// for the time, but Java's do. So the broker's clock is moved, and this process, with its
// aggregator and producers, is a day off.
const shiftC = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
#ifndef CLOCK_SHIFT
#error CLOCK_SHIFT
#endif
int clock_gettime(clockid_t id, struct timespec *ts) {
	static int (*real)(clockid_t, struct timespec *);
	if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
	int r = real(id, ts);
	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) ts->tv_sec += CLOCK_SHIFT;
	return r;
}
int gettimeofday(struct timeval *tv, void *tz) {
	static int (*real)(struct timeval *, void *);
	if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
	int r = real(tv, tz);
	if (r == 0 && tv) tv->tv_sec += CLOCK_SHIFT;
	return r;
}
`

// kafkaAt starts a broker whose clock is shifted by so much.
func kafkaAt(t *testing.T, shift time.Duration) *servers.KafkaProc {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a broker")
	}
	servers.Kafka(t)
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "shift.c"), filepath.Join(dir, "shift.so")
	if err := os.WriteFile(src, []byte(shiftC), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", fmt.Sprintf("-DCLOCK_SHIFT=(%d)", int(shift.Seconds())), "-o", lib, src, "-ldl")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cc.Args, err, out)
	}
	return servers.StartKafka(t, nil, "KAFKA_PRELOAD="+lib)
}

const hourAndDay = `
  rules:
    - name: per-year
      match: {api: "*"}
      limit: 5
      per: year
      window: calendar
      then: {block: until-reset}
    - name: hourly
      match: {api: "*"}
      limit: 4
      per: 1h
      then: {block: 2h}
`

// An aggregator and its producers whose clocks are a day off, in either direction. The broker's
// time counts: verdicts lie in its day, whatever the event claims. Dead letters are still accepted.
func TestAWrongClock(t *testing.T) {
	t.Parallel()
	for name, shift := range map[string]time.Duration{"a day behind": 24 * time.Hour, "a day ahead": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker := kafkaAt(t, shift)
			r := newRig(t, []string{broker.Addr()})
			// As the first versions created it: the broker refuses tomorrow's records.
			r.create(r.names.DeadLetters, "CreateTime")
			m := r.begin(compile(t, hourAndDay))
			for range 6 {
				r.emit(hit("u1", "a.b")) // at the broker's time
				e := hit("u2", "a.b")
				e.Time = now() // at the producer's
				r.emit(e)
			}
			r.emitTo(r.names.Events, 0, "not an event")
			counted := 6 * event.One
			if shift > 0 { // older than max_lateness: reported, and counted nowhere
				counted = 0
			}
			eventually(t, "events count by the broker's time", func() bool {
				return r.countAt("u1", "per-year", m, shift) == 6*event.One && r.countAt("u2", "per-year", m, shift) == counted
			})
			tooOld := map[bool]float64{true: 6}[shift > 0]
			eventually(t, "what is too old is said", func() bool { return m.counterOf(t, "tallygate_events_total", "too_old") == tooOld })
			eventually(t, "the dead letter is kept", func() bool { return r.letters() == 1 })
			there := time.Now().Add(shift)
			want := map[string]bool{"u1 per-year": true, "u1 hourly": true}
			if shift < 0 {
				want["u2 per-year"], want["u2 hourly"] = true, true
			}
			eventually(t, "the verdicts are there", func() bool { return len(r.verdicts()) >= len(want) })
			for _, v := range r.verdicts() {
				if since := v.Since.Time(); since.Sub(there).Abs() > time.Hour || !want[v.Key[0].Value+" "+v.Rule] {
					t.Errorf("a verdict on %s by %s since %v, at the broker it is %v", v.KeyText(), v.Rule, since, there)
				}
				if v.Rule == "hourly" && v.Until != v.Since+2*event.Hour {
					t.Errorf("it lasts until %v, from %v", v.Until, v.Since)
				}
			}
			m.end(t)
			m = r.start(compile(t, hourAndDay)) // nothing was evicted
			r.ready(m)
			if n := r.countAt("u1", "per-year", m, shift); n != 6*event.One {
				t.Errorf("after a restart u1 has %v", n)
			}
		})
	}
}

// countAt explains for a caller whose clock is right.
func (r *rig) countAt(uid, rule string, m *member, shift time.Duration) event.Decimal {
	list, err := m.Explain([]event.Dim{{Name: "uid", Value: uid}}, "", event.FromTime(time.Now().Add(shift)))
	if err != nil {
		return -1
	}
	for _, e := range list {
		if e.Rule == rule {
			return e.Count
		}
	}
	return -1
}

// With broker_time: create, the producers' clocks count. Kafka refuses one that is far ahead; one
// that is a day behind counts in yesterday.
func TestAProducersClockWhereItIsTrusted(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		r.create(r.names.Events, "CreateTime")
		m := r.begin(compile(t, hourAndDay), func(c *Config) { c.BrokerTime = brokerTimeCreate })
		send := func(uid string, at time.Time) error {
			_, _, err := r.send.SendMessage(&sarama.ProducerMessage{Topic: r.names.Events, Partition: event.Partition([]byte(uid), rigPartitions),
				Value: sarama.StringEncoder(`{"uid":"` + uid + `","api":"a.b"}`), Timestamp: at})
			return err
		}
		if err := send("u1", time.Now().Add(24*time.Hour)); err == nil || !strings.Contains(err.Error(), "timestamp") {
			t.Errorf("a record from tomorrow: %v", err)
		}
		for range 5 {
			if err := send("behind", time.Now().Add(-24*time.Hour)); err != nil {
				t.Fatal(err)
			}
			if err := send("right", time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "all have counted", func() bool {
			return r.countAt("behind", "hourly", m, -24*time.Hour) == 5*event.One && r.countAt("right", "hourly", m, 0) == 5*event.One
		})
		if n := r.countAt("behind", "hourly", m, 0); n != 0 {
			t.Errorf("yesterday's count today: %v", n)
		}
	})
}

// create makes a topic with these timestamps.
func (r *rig) create(topic, timestamps string) {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	detail := &sarama.TopicDetail{NumPartitions: rigPartitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{"message.timestamp.type": &timestamps}}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		r.t.Fatal(err)
	}
}
