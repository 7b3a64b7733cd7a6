package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

const hostile = `
    - name: yearly-utc
      match: {api: "*"}
      limit: 1G
      per: year
      window: calendar
      then: {block: until-reset}
    - name: bytes-utc
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 9000G
      per: year
      window: calendar
      then: {block: until-reset}
    - name: per-device
      key: [uid, attrs.device]
      match: {api: "*"}
      limit: 1G
      per: 1h
      then: {block: until-reset}
`

// fate is what becomes of a record: an event that counts nowhere, if none of these.
type fate uint

const (
	ignored fate = 0
	counts  fate = 1 // for the uid "hostile", once
	dead    fate = 2 // a dead letter
)

// badRecords are what one partition may hold between its events.
var badRecords = []struct {
	name  string
	value string
	fate  fate
}{
	{"nothing", "", dead},
	{"null", "null", dead},
	{"text", "hello", dead},
	{"half", `{"api":"x.y","uid":"hostile"`, dead},
	{"two", `{"api":"x.y","uid":"hostile"}{"api":"x.y","uid":"hostile"}`, dead},
	{"a string", `"x.y"`, dead},
	{"a number", "17", dead},
	{"binary", "\x00\x01\x02\xff\xfe", dead},
	{"a byte order mark", "\xef\xbb\xbf{\"api\":\"x.y\",\"uid\":\"hostile\"}", dead},
	{"no api", `{"uid":"hostile"}`, dead},
	{"api of a wrong type", `{"api":{"a":1},"uid":"hostile"}`, dead},
	{"long api", `{"api":"` + strings.Repeat("a", 129) + `","uid":"hostile"}`, dead},
	{"CRLF in the api", `{"api":"x\r\ny","uid":"hostile"}`, dead},
	{"uid of a wrong type", `{"api":"x.y","uid":["hostile"]}`, dead},
	{"fractional uid", `{"api":"x.y","uid":42.0}`, dead},
	{"1 MiB uid", `{"api":"x.y","uid":"` + strings.Repeat("u", 1<<20) + `"}`, dead},
	{"negative cost", `{"api":"x.y","uid":"hostile","cost":-1}`, dead},
	{"cost of 2^63", `{"api":"x.y","uid":"hostile","cost":9223372036854775808}`, dead},
	{"cost of a wrong type", `{"api":"x.y","uid":"hostile","cost":"1"}`, dead},
	{"cost of 1e999999999", `{"api":"x.y","uid":"hostile","cost":1e999999999}`, dead},
	{"cost too fine", `{"api":"x.y","uid":"hostile","cost":0.0000001}`, dead},
	{"time of a wrong type", `{"api":"x.y","uid":"hostile","time":true}`, dead},
	{"time that is none", `{"api":"x.y","uid":"hostile","time":"yesterday"}`, dead},
	{"time beyond all", `{"api":"x.y","uid":"hostile","time":9223372036854775807}`, dead},
	{"nested attribute", `{"api":"x.y","uid":"hostile","attrs":{"a":{"b":1}}}`, dead},
	{"attrs of a wrong type", `{"api":"x.y","uid":"hostile","attrs":[1]}`, dead},
	{"33 attributes", `{"api":"x.y","uid":"hostile","attrs":{` + manyAttrs(33) + `}}`, dead},
	{"deep array", strings.Repeat("[", 100_000), dead},
	{"deep object", strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000), dead},
	{"10,000 events", "[" + strings.Repeat(`{"api":"x.y","uid":"hostile"},`, 9999) + `{"api":"x.y","uid":"hostile"}]`, dead},
	{"an array of arrays", `[[{"api":"x.y","uid":"hostile"}]]`, dead},
	{"70 KiB event", `{"api":"x.y","uid":"hostile","x":"` + strings.Repeat("x", 70<<10) + `"}`, dead},
	{"an empty array", "[]", ignored},
	{"1970", `{"api":"x.y","uid":"hostile","time":0}`, ignored},
	{"a refund of nothing", `{"api":"x.y","uid":"hostile","cost":-1,"refunds":"nothing"}`, ignored},
	{"fractional cost", `{"api":"x.y","uid":"hostile","cost":0.5}`, ignored},
	{"no uid", `{"api":"x.y"}`, ignored},
	{"2100", `{"api":"x.y","uid":"hostile","time":"2100-01-01T00:00:00Z"}`, counts},
	{"what is no address", `{"api":"x.y","uid":"hostile","ip":"999.1.1.1"}`, counts},
	{"unknown fields", `{"api":"x.y","uid":"hostile","__offset":1,"deep":[[[[{"a":[]}]]]]}`, counts},
	{"fields twice", `{"api":"x.y","uid":"nobody","uid":"hostile"}`, counts},
	{"huge attribute", `{"api":"x.y","uid":"hostile","attrs":{"device":"` + strings.Repeat("d", 50<<10) + `"}}`, counts},
	{"long outcome", `{"api":"x.y","uid":"hostile","outcome":"` + strings.Repeat("o", 50<<10) + `"}`, counts},
	{"a good one among bad ones", `[17,{"uid":"x"},{"api":"x.y","uid":"hostile"},null]`, counts | dead},
}

func manyAttrs(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"a%d":%d`, i, i)
	}
	return strings.Join(out, ",")
}

// strangeUIDs are legitimate, however they look.
var strangeUIDs = []string{"__offset", "\x00", "\x00checkpoint", "\x00fence", "a\r\nb", "a|b", "a=b&c=d", "%00", "漢字", " ", "null",
	"*", "{x}", strings.Repeat("u", 256)}

// Malformed records disturb no other: the good ones among them count, the
// bad ones are dead letters, and the aggregator goes on.
func TestBadInput(t *testing.T) {
	t.Parallel() // it waits more than it works
	servers.Nightly(t, "input")
	r := newRig(t, hostile)
	p := r.aggregator("a").Start().Ready()
	pid := p.cmd.Process.Pid
	bad := make([]*sarama.ProducerMessage, 2000)
	hostileCounts := 0
	var good []*sarama.ProducerMessage
	for i := range bad {
		b := badRecords[i%len(badRecords)]
		bad[i] = &sarama.ProducerMessage{Topic: r.names.Events, Partition: int32(i/len(badRecords)) % r.partitions,
			Value: sarama.StringEncoder(b.value), Headers: badHeaders(i), Metadata: b.fate}
		if b.fate&counts != 0 {
			hostileCounts++
		}
		if b.value == "" && i%2 == 0 {
			bad[i].Value = nil
		}
	}
	for i := range 20_000 {
		uid := fmt.Sprintf("good%d", i%500)
		good = append(good, r.record(uid, fmt.Sprintf(`{"api":"upload.put","uid":%q,"attrs":{"bytes":3}}`, uid)))
	}
	for _, uid := range strangeUIDs {
		good = append(good, r.record(uid, fmt.Sprintf(`{"api":"upload.put","uid":%s,"attrs":{"bytes":3}}`, quote(uid))))
	}
	r.putMixed(good, bad)
	r.caughtUp()

	r.compareGood(p, hostileCounts)
	r.compareDeadLetters(bad)
	if !p.Running() || p.cmd.Process.Pid != pid || strings.Contains(p.Logs(), "partition failed") || strings.Contains(p.Logs(), "session ended") {
		t.Error("the aggregator did not live through it")
	}
	if status := p.Stop(); status != 0 {
		t.Errorf("the aggregator exits with %d", status)
	}
	p.Start().Ready() // what it has written it can read
	r.compareGood(p, hostileCounts)
}

// badHeaders are odd ones for some records: as long as is possible, of another emitter, of no use.
func badHeaders(i int) []sarama.RecordHeader {
	switch {
	case i%70 == 1:
		return []sarama.RecordHeader{{Key: []byte("x"), Value: []byte(strings.Repeat("x", 500<<10))}}
	case i%7 == 2:
		return []sarama.RecordHeader{{Key: []byte("tg-i"), Value: []byte("i")}, {Key: []byte("tg-s"), Value: []byte("short")}}
	case i%7 == 3:
		return []sarama.RecordHeader{{Key: []byte{}, Value: nil}, {Key: []byte("content-type"), Value: []byte("text/\xff")}}
	case i%7 == 4:
		return []sarama.RecordHeader{{Key: []byte("tg-s"), Value: make([]byte, 8)}, {Key: []byte("tg-i"), Value: nil}}
	}
	return nil
}

// quote writes a JSON string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\u%04x`, c)
			continue
		}
		b.WriteRune(c)
	}
	b.WriteByte('"')
	return b.String()
}

// putMixed appends the good ones with the bad ones between them, in requests that the broker takes.
func (r *rig) putMixed(good, bad []*sarama.ProducerMessage) {
	r.t.Helper()
	every := len(good)/len(bad) + 1
	for i, b := range bad {
		from := min(i*every, len(good))
		r.put(append(good[from:min(from+every, len(good)):min(from+every, len(good))], b))
	}
	r.put(good[min(len(bad)*every, len(good)):])
}

func (r *rig) compareGood(p *Process, hostileCounts int) {
	r.t.Helper()
	want := map[string]int{"hostile": hostileCounts, "nobody": 0, "x": 0}
	for i := range 500 {
		want[fmt.Sprintf("good%d", i)] = 40
	}
	for _, uid := range strangeUIDs {
		want[uid] = 1
	}
	var uids []string
	for uid := range want {
		uids = append(uids, uid)
	}
	d := differencesOf("counts of good events")
	explain(r.t, uidKeys(uids...), func(key string, reply explainReply) {
		uid := uidOf(key)
		for _, e := range reply.list {
			n := want[uid]
			if e.Rule == "bytes-utc" {
				if n *= 3; uid == "hostile" {
					n = 0
				}
			}
			if d.compared(); e.Count.String() != fmt.Sprint(n) {
				d.add("uid %q has %v under %s, not %d", uid, e.Count, e.Rule, n)
			}
		}
	}, p)
	d.report(r.t)
}

// compareDeadLetters finds the bad records, each with where it came from and why, and no others.
func (r *rig) compareDeadLetters(bad []*sarama.ProducerMessage) {
	r.t.Helper()
	want := map[string]*sarama.ProducerMessage{}
	for _, m := range bad {
		if m.Metadata.(fate)&dead != 0 {
			want[fmt.Sprintf("%s/%d/%d", m.Topic, m.Partition, m.Offset)] = m
		}
	}
	d := differencesOf("dead letters")
	reasons := map[string]int{}
	for p := range r.partitions {
		r.records(r.names.DeadLetters, p, func(m *sarama.ConsumerMessage) {
			from := header(m, "topic") + "/" + header(m, "partition") + "/" + header(m, "offset")
			reasons[header(m, "reason")]++
			d.compared()
			sent := want[from]
			delete(want, from)
			if sent == nil {
				d.add("%s is a dead letter (%s, %s): %.100q", from, header(m, "reason"), header(m, "detail"), m.Value)
				return
			}
			if err := sameLetter(sent, m); err != nil {
				d.add("%s: %v", from, err)
			}
		})
	}
	for from, m := range want {
		value, _ := m.Value.Encode()
		d.add("%s is no dead letter: %.100q", from, value)
	}
	d.report(r.t)
	r.t.Logf("reasons: %v", reasons)
}

func sameLetter(sent *sarama.ProducerMessage, m *sarama.ConsumerMessage) error {
	var value []byte
	if sent.Value != nil {
		value, _ = sent.Value.Encode()
	}
	if reason := header(m, "reason"); reason == "" || reason == "unreadable" {
		return fmt.Errorf("reason %q", reason)
	}
	if cut := header(m, "cut-from"); cut != "" {
		if cut != fmt.Sprint(len(value)) || len(m.Value) < 100<<10 {
			return fmt.Errorf("cut from %s to %d, but it had %d bytes", cut, len(m.Value), len(value))
		}
		value = value[:len(m.Value)]
	}
	if string(m.Value) != string(value) {
		return fmt.Errorf("its value is %.100q, not %.100q", m.Value, value)
	}
	return nil
}
