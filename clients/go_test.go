package clients

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// build builds an example of Go.
func build(t *testing.T, name string) string {
	t.Helper()
	servers.Nightly(t, "clients")
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../examples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// parts are the options by which an example finds an installation.
func (in installation) parts(t *testing.T) []string {
	t.Helper()
	return []string{"-kafka", in.brokers, "-redis", servers.Redis(t), "-prefix", in.prefix}
}

// The service of docs/enforce.md, with the rule that it has.
func TestGoLimits(t *testing.T) {
	page, err := os.ReadFile("../docs/enforce.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(page), "# rules.yaml\n")
	rules, _, found := strings.Cut(rules, "```\n")
	if !found {
		t.Fatal("docs/enforce.md has no rules.yaml")
	}
	program, in, listen := build(t, "orders"), install(t, rules), servers.FreeAddr(t)
	launch(t, true, exec.Command(program, append(in.parts(t), "-listen", listen)...))
	ordersAreLimited(t, in, listen, "")
}

// A worker asks before it works, and its events count.
func TestGoWorkerAsks(t *testing.T) {
	program, in := build(t, "worker"), install(t, pythonRules)
	testrun.Eventually(t, "a worker is denied", func() bool {
		cmd := exec.CommandContext(t.Context(), program, in.parts(t)...)
		cmd.Stdin = strings.NewReader("42\n42\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.HasPrefix(string(out), "no report for 42 in the next ")
	})
	exports := 0
	for p := range installed {
		for _, m := range read(t, servers.Kafka(t), in.prefix+".events", p) {
			if e := decode(t, m.Value); e.API != "report.export" || e.UID != "42" || e.Outcome != "success" {
				t.Errorf("an event is %s", m.Value)
			}
			exports++
		}
	}
	if exports < 4 {
		t.Errorf("%d exports are counted, and the limit is three", exports)
	}
}

// ordersAreLimited orders in a shop with a limit of five. source: how its events name the service.
func ordersAreLimited(t *testing.T, in installation, listen, source string) {
	t.Helper()
	order := func(user string) answered {
		return ask(t, http.MethodGet, "http://"+listen+"/orders/17", "X-User", user)
	}
	testrun.Eventually(t, "the shop answers", func() bool { return order("somebody").StatusCode == http.StatusOK })
	for n := 1; n <= 5; n++ {
		if r := order("42"); r.StatusCode != http.StatusOK {
			t.Fatalf("order %d of 5 got %d", n, r.StatusCode)
		}
	}
	deniedAlike(t, in, "42", "get.orders.id", func() answered { return order("42") })
	if r := order("43"); r.StatusCode != http.StatusOK {
		t.Errorf("somebody else got %d", r.StatusCode)
	}
	ordersHaveEvents(t, in, source)
}

// ordersHaveEvents finds one event for each order that was let in: with its name, and what the handler noted. Of what
// was denied it finds some, as Go and Java emit it: only of who was denied.
func ordersHaveEvents(t *testing.T, in installation, source string) {
	t.Helper()
	byUser, limited := map[string]int{}, map[string]int{}
	testrun.Eventually(t, "the last order and a denied one have events", func() bool {
		clear(byUser)
		clear(limited)
		for p := range installed {
			for _, m := range read(t, servers.Kafka(t), in.prefix+".events", p) {
				e := decode(t, m.Value)
				order, _ := e.Attr("order")
				status, _ := e.Attr("status")
				want, of := [3]string{event.OutcomeSuccess, "17", "200"}, byUser
				if e.Outcome == event.OutcomeLimited { // no handler noted an order
					want, of = [3]string{event.OutcomeLimited, "", "429"}, limited
				}
				of[e.UID]++
				if source != "" && (len(m.Headers) != 1 || string(m.Headers[0].Value) != source) {
					t.Errorf("the headers are %v", m.Headers)
				}
				if e.API != "get.orders.id" || [3]string{e.Outcome, order.Text, status.Text} != want ||
					int(event.Partition([]byte(e.UID), installed)) != p {
					t.Fatalf("partition %d has %s, %v", p, m.Value, m.Headers)
				}
			}
		}
		return byUser["43"] > 0 && limited["42"] > 0
	})
	if byUser["43"] != 1 || byUser["42"] < 6 {
		t.Errorf("events by user: %v", byUser)
	}
	if len(limited) != 1 {
		t.Errorf("denied ones by user: %v", limited)
	}
}
