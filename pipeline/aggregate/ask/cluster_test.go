package ask_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask/asktest"
)

// A member that does not answer is named, with the partitions that it has, and delays nobody.
func TestClusterNamesWhoDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := asktest.New(t, compile(t, calls))
		hole := func(context.Context, string, string) (net.Conn, error) { // it accepts, and says nothing
			ours, _ := net.Pipe()
			return ours, nil
		}
		m := g.Join(ask.Config{Advertise: "here:1", Dial: hole}, false)
		g.Join(ask.Config{Advertise: "hole:1"}, false)
		own := api.Status{Aggregator: &api.AggregatorStatus{Of: asktest.Partitions, Partitions: []api.PartitionStatus{{Partition: 0}, {Partition: 2}}}}
		c := m.Cluster(t.Context(), own, "/v1/status")
		if len(c.Members) != 1 || len(c.Missing) != 1 || c.Missing[0].Address != "hole:1" || !strings.Contains(c.Missing[0].Reason, "has not answered within 1.2s") ||
			len(c.Unowned) != 2 || !strings.Contains(c.Unowned[0].Reason, "its owner hole:1 did not answer") {
			t.Errorf("%+v", c)
		}
		w := httptest.NewRecorder()
		m.ServeUnmatched(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/unmatched", nil))
		var is api.Unmatched
		if err := json.Unmarshal(w.Body.Bytes(), &is); err != nil || is.Instances != 1 || len(is.Missing) != 1 || is.Missing[0].Address != "hole:1" {
			t.Errorf("what no rule counts: %v %+v", err, is)
		}
	})
}

// While Kafka does not answer who is in the group, members answer each other's questions, and give no commands.
func TestQuestionsWithoutKafka(t *testing.T) {
	g := start(t, calls, 2)
	for _, uid := range []string{"a", "b", "c", "d"} {
		if w := g.do(0, http.MethodPost, "/v1/commands", block(uid)); w.Code != http.StatusOK {
			t.Errorf("a block of %s: %d %s", uid, w.Code, w.Body)
		}
	}
	g.Away.Store(true)
	c := g.Members[0].Cluster(t.Context(), api.Status{}, "/v1/status")
	if len(c.Members) != 2 || len(c.Missing) > 0 || c.Trouble == nil || c.Trouble.Error == "" {
		t.Errorf("%+v", c)
	}
	if w := g.do(0, http.MethodGet, "/v1/unmatched", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"instances":2`) || !strings.Contains(w.Body.String(), "no broker answers") {
		t.Errorf("what no rule counts: %d %s", w.Code, w.Body)
	}
	codes := map[int]int{}
	for _, uid := range []string{"a", "b", "c", "d"} { // each member owns some of them
		codes[g.do(0, http.MethodPost, "/v1/commands", block(uid)).Code]++
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusServiceUnavailable] == 0 || len(codes) != 2 {
		t.Errorf("commands are answered with %v", codes)
	}
}

// A command that Kafka does not acknowledge is answered in the end: it may have been carried out.
func TestCommandsThatKafkaDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := asktest.New(t, compile(t, calls))
		m := g.Join(ask.Config{}, false)
		g.Stall.Store(true)
		w := httptest.NewRecorder()
		m.ServeCommand(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/commands", strings.NewReader(block("1"))))
		if w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), "deadline") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
