package aggregate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
)

const distributed = `  rules:
    - {name: calls, match: {api: a}, limit: 5, per: 1h, then: {block: 1m}}
    - name: both
      match: {api: [a, b]}
      limits:
        - {name: hourly, limit: 100, per: 1h}
        - {name: daily, limit: {from: attrs.quota, else: 1000, most: 10000}, per: 24h}
      then: {block: 1m}
`

// distributed asks an instance how counts are distributed.
func (m *member) distributed(t *testing.T, rule string) (is api.Distribution) {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeDistribution(w, httptest.NewRequest(http.MethodGet, "/v1/rules/distribution?rule="+rule, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &is); err != nil {
		t.Fatal(err)
	}
	return is
}

// The numbers are those of Explain, of all keys.
func TestDistribution(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, distributed))
		const users = 300
		var events []*event.Event
		for u := range users {
			for range u % 9 {
				events = append(events, hit(fmt.Sprint("u", u), "a"))
			}
		}
		events = append(events, hit("other", "b"))
		r.emit(events...)
		eventually(t, "all is counted", func() bool {
			n := 0
			for _, l := range m.distributed(t, "both").Limits {
				n += l.Keys
			}
			return n == 2*(users-34+1) && m.distributed(t, "calls").Limits[0].Over == 33*3
		})
		is := m.distributed(t, "calls")
		want := map[string]int{"1": 34, "2": 34, "3": 33, "4": 33, "5": 33, "10": 99}
		l := is.Limits[0]
		for _, b := range l.Buckets {
			text, _ := b.To.MarshalText()
			if b.Keys != want[string(text)] {
				t.Errorf("up to %s: %d keys", text, b.Keys)
			}
		}
		if len(is.Limits) != 1 || l.Limit != "" || event.Decimal(*l.Number) != 5*event.One || l.Keys != users-34 || l.Near != 33+33 || len(l.Buckets) != 6 || is.Sampled || len(is.Missing) != 0 || len(is.Partitions) != len(m.owned()) {
			t.Errorf("%+v %+v", is, l)
		}
		is = m.distributed(t, "both")
		if len(is.Limits) != 2 || is.Limits[0].Limit != "hourly" || is.Limits[1].Limit != "daily" || is.Limits[1].Number != nil || is.Limits[0].Over+is.Limits[1].Near != 0 {
			t.Errorf("%+v", is)
		}
		if is = m.distributed(t, "both/daily"); len(is.Limits) != 1 || is.Limits[0].Keys != users-34+1 {
			t.Errorf("%+v", is)
		}
	})
}
