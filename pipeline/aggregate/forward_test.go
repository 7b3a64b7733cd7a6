package aggregate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
)

const perIPAndUID = `
  rules:
    - {name: per-uid, match: {api: a.b}, limit: 1000000, per: year, window: calendar, then: {block: until-reset}}
    - {name: per-ip, key: [ip], match: {api: a.b}, limit: 1000000, per: year, window: calendar, then: {block: until-reset}}
    - {name: per-ip-device, key: [attrs.device], match: {api: a.b}, limit: 1000000, per: year, window: calendar, then: {block: until-reset}}
`

// An event counts under each of its keys, whichever partition owns them. It is forwarded as it was
// counted, without a second limit on its size.
func TestForwardedEventsCountWhereverTheirKeysAre(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, perIPAndUID))
		escapes, invalid, long := strings.Repeat(`\n`, 12<<10), strings.Repeat("\xff", 24<<10), strings.Repeat("d", 10<<10)
		plain := func(uid, more string) string {
			return fmt.Sprintf(`{"api":"a.b","uid":%q,"ip":"10.0.0.1","attrs":{"device":"%s","note":"%s"},"x":"%s"}`, uid, long, more, more[:4<<10])
		}
		cloud := []sarama.RecordHeader{{Key: []byte("content-type"), Value: []byte("application/cloudevents+json")}}
		headers := []sarama.RecordHeader{{Key: []byte("ce_specversion"), Value: []byte("1.0")}, {Key: []byte("ce_id"), Value: []byte("7")},
			{Key: []byte("ce_type"), Value: []byte("a.b")}, {Key: []byte("ce_subject"), Value: []byte(invalid[:200])}}
		want := map[string]int{}
		var msgs []*sarama.ProducerMessage
		send := func(n int, headers []sarama.RecordHeader, value string, uids ...string) {
			for _, uid := range uids {
				want[event.CanonicalUID(uid)] += n
			}
			for i := range n {
				msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: int32(i % rigPartitions), Headers: headers, Value: sarama.StringEncoder(value)})
			}
		}
		send(10, nil, plain("escapes", escapes), "escapes")
		send(10, nil, plain("invalid", invalid), "invalid")
		send(10, nil, "["+plain("one", escapes)+", 17, "+plain("other", invalid)+"]", "one", "other")
		send(10, nil, strings.Replace(plain("x", escapes), `"uid":"x"`, `"uid":"`+long[:300]+`"`, 1), long[:300])
		send(10, cloud, `{"specversion":"1.0","type":"a.b","subject":"structured","data":`+plain("ignored", invalid)+`}`, "structured")
		send(1, headers, `{"ip":"10.0.0.1","attrs":{"device":"`+long+`","note":"`+escapes+`"}}`, invalid[:200])
		r.sendAll(msgs)
		total := 0
		for uid, n := range want {
			total += n
			eventually(t, fmt.Sprintf("%.20s is counted", uid), func() bool { return r.count(uid, "per-uid", m) == event.Decimal(n)*event.One })
		}
		for rule, dim := range map[string]event.Dim{"per-ip": {Name: "ip", Value: "10.0.0.1"}, "per-ip-device": {Name: "attrs.device", Value: event.CanonicalText(long)}} {
			eventually(t, rule+" has them all", func() bool {
				list, _ := m.Explain([]event.Dim{dim}, "", now())
				for _, e := range list {
					if e.Rule == rule {
						return e.Count == event.Decimal(total)*event.One
					}
				}
				return false
			})
		}
		eventually(t, "the arrays that hold a 17 are dead letters, and nothing else is", func() bool { return r.letters() == 10 })
	})
}

// A dead letter has its record's headers, so that a CloudEvent in them can be sent again.
func TestDeadLettersKeepTheirHeaders(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.begin(compile(t, perIPAndUID))
		header := func(key, value string) sarama.RecordHeader {
			return sarama.RecordHeader{Key: []byte(key), Value: []byte(value)}
		}
		large := strings.Repeat("x", 500<<10)
		r.sendAll([]*sarama.ProducerMessage{{Topic: r.names.Events, Partition: 1, Value: sarama.StringEncoder(`{"cost":"2","x":"` + large + `"}`), Headers: []sarama.RecordHeader{
			header("tg-i", "x"), header("trace", large), header("trace", "two"), header("ce_specversion", "1.0"), header("ce_type", "a.b"), header("ce_id", "\xff"),
		}}})
		eventually(t, "it is kept", func() bool { return r.letters() == 1 })
		var got []string
		for p := range int32(rigPartitions) {
			for _, letter := range r.records(r.names.DeadLetters, p) {
				if len(letter.Value) < 300<<10 {
					t.Errorf("%d bytes of the value are left", len(letter.Value))
				}
				for _, h := range letter.Headers {
					if name, own := strings.CutPrefix(string(h.Key), "header:"); own || string(h.Key) == "headers-cut" {
						got = append(got, name+"="+string(h.Value))
					}
				}
			}
		}
		if want := "ce_specversion=1.0 ce_type=a.b ce_id=\xff tg-i=x trace=two headers-cut=1"; strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
