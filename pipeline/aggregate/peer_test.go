package aggregate

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
)

// asking is an instance behind a front that authenticates callers: other instances by their
// signature, others by a header.
type asking struct {
	*member
	server *httptest.Server
}

func (r *rig) startAsking(change ...func(*Config)) *asking {
	r.t.Helper()
	a := &asking{}
	a.server = r.serve(http.HandlerFunc(a.serve))
	change = append(change, func(c *Config) { c.Advertise = a.server.Listener.Addr().String() })
	a.member = r.start(compile(r.t, yearly), change...)
	return a
}

func (a *asking) serve(w http.ResponseWriter, r *http.Request) {
	actor, peer, err := a.Peer(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	if !peer {
		actor = ask.Actor{Name: r.Header.Get("X-Test-Actor"), Role: "operator"}
	}
	actor.May = func(command string) error {
		if command == "forget" {
			return errors.New("not you")
		}
		return nil
	}
	r = r.WithContext(ask.WithActor(r.Context(), actor))
	if strings.HasPrefix(r.URL.Path, "/v1/commands") {
		a.ServeCommand(w, r)
	} else {
		a.ServeExplain(w, r)
	}
}

func (a *asking) command(t *testing.T, actor, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, a.server.URL+"/v1/commands", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Test-Actor", actor)
	return answer(t, a.server, req)
}

func answer(t *testing.T, by *httptest.Server, req *http.Request) (int, string) {
	t.Helper()
	resp, err := by.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// Whichever instance is asked, the audit has the credential's name, and on whose behalf it acts.
func TestCommandsCarryWhoGaveThem(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.share = []int32{0, 2}
		two := []*asking{r.startAsking()}
		r.share = []int32{1, 3}
		two = append(two, r.startAsking())
		r.shared(two[0].member, two[1].member)
		type given struct{ key, by string }
		var want []given
		for i, uid := range uids(8) {
			for _, c := range []struct{ actor, body, by string }{
				{"deploy-bot", `"by":"alice"`, `"by":"deploy-bot","on_behalf_of":"alice"`},
				{"deploy-bot", `"by":"a","on_behalf_of":"carol"`, `"by":"deploy-bot","on_behalf_of":"carol"`},
				{"deploy-bot", `"for":""`, `"by":"deploy-bot","command"`},
				{"", `"by":"dave"`, `"by":"dave","command"`},
			} {
				body := fmt.Sprintf(`{"command":"unblock","key":{"uid":%q},"reason":"a test",%s}`, uid, c.body)
				// The group may still rebalance: an unanswered command may count.
				eventually(t, uid+" is unblocked", func() bool {
					status, _ := two[i%2].command(t, c.actor, body)
					return status == http.StatusOK
				})
				want = append(want, given{fmt.Sprintf(`"key":"uid=%s"`, uid), c.by})
			}
		}
		if status, said := two[0].command(t, "deploy-bot", `{"command":"forget","key":{"uid":"1"},"reason":"a test"}`); status != http.StatusForbidden || !strings.Contains(said, "not you") {
			t.Errorf("a command that the actor may not give: %d %s", status, said)
		}
		eventually(t, "the audit has who gave them, for each of the keys", func() bool {
			var all []string
			for p := range int32(rigPartitions) {
				for _, rec := range r.records(r.names.Audit, p) {
					all = append(all, string(rec.Value))
				}
			}
			return !slices.ContainsFunc(want, func(g given) bool {
				return !slices.ContainsFunc(all, func(said string) bool { return strings.Contains(said, g.key) && strings.Contains(said, g.by) })
			})
		})
	})
}

// An instance that returns under its name, without a rebalance, has a new key, and the others
// accept it.
func TestARestartedInstanceIsKnown(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		named := func(name string) func(*Config) {
			return func(c *Config) { c.InstanceID, c.SessionTimeout = name, 30*time.Second }
		}
		one, two := r.startAsking(named("one")), r.startAsking(named("two"))
		r.shared(one.member, two.member)
		one.end(t)
		one.server.Close()
		one = r.startAsking(named("one"))
		r.ready(one.member)
		for _, uid := range uids(8) {
			for _, at := range []*asking{one, two} {
				eventually(t, "a command about "+uid, func() bool {
					status, said := at.command(t, "bot", fmt.Sprintf(`{"command":"unblock","key":{"uid":%q},"reason":"a test"}`, uid))
					if status != http.StatusOK {
						t.Logf("%d %s", status, said)
					}
					return status == http.StatusOK
				})
			}
		}
	})
}
