package shard

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// A line of the audit topic is what encoding/json reads and writes, whatever the instance is
// called.
func TestAuditLine(t *testing.T) {
	v := verdict.Verdict{Rule: "r", Key: []event.Dim{{Name: "uid", Value: "a\"<&>"}}, APIs: []string{"x.*"},
		Count: 3 * event.One, Limit: 2 * event.One, Since: 1_700_000_000_123_456, Until: 1_700_000_060_000_000, Seq: 7}
	for _, name := range []string{"agg-1", "a \"b\" <c>\u2028é", "\xff"} {
		line := appendAudit(nil, v.Since, jsonString(name), verdict.AppendJSON(nil, &v), []byte(`["oncall"]`))
		var got struct {
			Notify  []string        `json:"notify"`
			Type    string          `json:"type"`
			At      event.Micros    `json:"at"`
			By      string          `json:"by"`
			Verdict verdict.Verdict `json:"verdict"`
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if valid := string([]rune(name)); got.Type != "verdict" || got.At != v.Since || got.By != valid || !slices.Equal(got.Notify, []string{"oncall"}) || !reflect.DeepEqual(got.Verdict, v) {
			t.Errorf("%s says %+v", line, got)
		}
	}
}

func BenchmarkAuditLine(b *testing.B) {
	v := verdict.Verdict{Rule: "r", Key: []event.Dim{{Name: "uid", Value: "42"}}, APIs: []string{"x.*"},
		Count: 3 * event.One, Limit: 2 * event.One, Since: 1_700_000_000_123_456, Until: 1_700_000_060_000_000, Seq: 7}
	body, by := verdict.AppendJSON(nil, &v), []byte(`"agg-1"`)
	b.ReportAllocs()
	for b.Loop() {
		appendAudit(nil, v.Since, by, body, nil)
	}
}
