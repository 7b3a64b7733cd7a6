package decision_test

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
)

func TestAdmitsUpToTheLimit(t *testing.T) {
	onEachRedis(t, func(t *testing.T, p *permits) {
		r := p.server(t)
		for i := range 3 {
			a := r.admit(`{"uid": 42, "api": "sms.send"}`)
			if !a.Admitted || a.Limited || a.Permit == "" || a.ID != a.Permit || a.Token == "" || !strings.HasPrefix(string(a.PermitAt), `"20`) {
				t.Fatalf("%d: %+v", i, a)
			}
			if a.Rule != "daily" || a.Public != "messages" || a.most() != 3*event.One || a.left() != event.Decimal(2-i)*event.One || a.Reset < 3599 || a.Reset > 3601 || a.RetryAfter != 0 || a.Action != "" {
				t.Errorf("%d: %+v", i, a)
			}
		}
		a := r.admit(`{"uid": 42, "api": "sms.send"}`)
		if a.Admitted || !a.Limited || a.InDoubt || a.Token != "" || a.left() != 0 || a.RetryAfter < 3590 || a.RetryAfter > 3601 || a.Rule != "daily" || a.Public != "messages" || a.Action != "block" || time.Until(a.Until) < time.Minute {
			t.Errorf("above the limit: %+v", a)
		}
		r.admit(`{"uid": 42, "api": "yearly"}`)
		if a := r.admit(`{"uid": 42, "api": "yearly"}`); a.Admitted || a.Until.YearDay() != 1 || !a.Until.Equal(a.Until.Truncate(24*time.Hour)) {
			t.Errorf("denied until %v, not until the year ends", a.Until)
		}
		a = r.admit(`{"uid": 43, "api": "sms.send", "attrs": {"item": 7.0}}`)
		if want := `{"attrs.item=7":`; !a.Admitted || !strings.HasPrefix(string(a.PermitAt), want) || !strings.Contains(string(a.PermitAt), `"uid=43":`) || a.Rule != "by-item" {
			t.Errorf("two keys: %+v %s, want %s", a, a.PermitAt, want)
		}
		if a := r.admit(`{"uid": 42, "api": "other"}`); !a.Admitted || a.Permit+a.ID+a.Token+string(a.PermitAt) != "" || a.Limit != nil {
			t.Errorf("what no rule is for: %+v", a)
		}
		if a := r.admit(`{"uid": 42, "api": "upload", "attrs": {"bytes": 70}}`); !a.Admitted || a.left() != 30*event.One {
			t.Errorf("a sum: %+v", a)
		}
		if a := r.admit(`{"uid": 42, "api": "upload", "attrs": {"bytes": 70}}`); a.Admitted || a.left() != 30*event.One {
			t.Errorf("more than is left of a sum: %+v", a)
		}
		if a := r.admit(`{"uid": 42, "api": "bucket", "cost": 2}`); !a.Admitted || a.most() != 4*event.One || a.left() != 2*event.One || a.Reset != 2 {
			t.Errorf("a bucket: %+v", a)
		}
		if a := r.admit(`{"uid": 42, "api": "bucket", "cost": 5}`); a.Admitted || a.RetryAfter != 0 || !strings.Contains(a.Reason, "never fits") {
			t.Errorf("more than the limit at once: %+v", a)
		}
	})
}

func TestAVerdictDeniesBeforeRedisIsAsked(t *testing.T) {
	p := newPermits(t, testRedis(t))
	r := p.server(t)
	r.blocks(block("flood", "uid", "42"))
	a := r.admit(`{"uid": 42, "api": "sms.send"}`)
	if a.Admitted || !a.Limited || a.Rule != "flood" || a.Action != "block" || a.RetryAfter != 300 || a.most() != 100*event.One || a.left() != 0 {
		t.Errorf("%+v", a)
	}
	if got := r.metrics()["tallygate_admit_questions_total"]; got != 0 {
		t.Errorf("%v questions", got)
	}
	r.table.SetEnabled(false)
	for range 4 {
		if a := r.admit(`{"uid": 42, "api": "sms.send"}`); !a.Admitted || a.Permit != "" {
			t.Errorf("while enforcement is off: %+v", a)
		}
	}
}

func TestPermitsEndAnywhere(t *testing.T) {
	onEachRedis(t, func(t *testing.T, p *permits) {
		one, two := p.server(t), p.server(t)
		for i := range 10 { // a permit that is given back is room for another one
			var a permit
			testrun.Eventually(t, fmt.Sprint("there is room for action ", i), func() bool {
				a = one.admit(`{"uid": 42, "api": "sms.send", "attrs": {"item": "x"}}`)
				return a.Admitted
			})
			if e := two.end("/v1/cancel", a.Token); !e.Ended || e.Elsewhere || e.Emitted {
				t.Fatalf("%+v", e)
			}
		}
		// What is under way ends with the action, what is counted with its event.
		for i := range 9 {
			var a permit
			testrun.Eventually(t, fmt.Sprint("there is room for both, ", i), func() bool {
				a = two.admit(`{"uid": 42, "api": "both"}`)
				return a.Admitted
			})
			one.end("/v1/done", a.Token)
		}
		testrun.Eventually(t, "both is used up", func() bool { a := one.admit(`{"uid": 42, "api": "both"}`); return !a.Admitted && a.Rule == "both" })
	})
}

func TestWhatOneInstanceHolds(t *testing.T) {
	p := newPermits(t, testRedis(t))
	one, two := p.server(t), p.server(t)
	const here = `{"uid": 42, "api": "here"}`
	a := one.admit(here)
	if !a.Admitted || a.Token == "" || a.Permit != "" || a.ID != "" {
		t.Fatalf("%+v", a)
	}
	if b := one.admit(here); b.Admitted || b.Rule != "here" {
		t.Errorf("%+v", b)
	}
	if e := two.end("/v1/done", a.Token); !e.Elsewhere {
		t.Errorf("another instance: %+v", e)
	}
	if one.admit(here).Admitted {
		t.Error("another instance ended what this one holds")
	}
	if e := one.end("/v1/done", a.Token); e.Elsewhere {
		t.Errorf("%+v", e)
	}
	if !one.admit(here).Admitted {
		t.Error("it is still held")
	}
}

// Asking again with the same id is no second action, and prolongs what is in flight.
func TestTheSameIDRenews(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, p *permits) {
		one, two := p.server(t), p.server(t)
		first := one.admit(`{"uid": 42, "api": "sms.send", "id": "order-1"}`)
		for range 5 {
			if a := two.admit(`{"uid": 42, "api": "sms.send", "id": "order-1"}`); !a.Admitted || a.Permit != "order-1" || string(a.PermitAt) != string(first.PermitAt) {
				t.Fatalf("%+v, first %+v", a, first)
			}
		}
		mine := one.admit(`{"uid": 42, "api": "export"}`)
		if !mine.Admitted || mine.ID == "" || mine.Permit != "" {
			t.Fatalf("%+v", mine)
		}
		began := time.Now()
		testrun.Eventually(t, "twice the hold is over", func() bool {
			if a := two.admit(`{"uid": 42, "api": "export", "id": "` + mine.ID + `"}`); !a.Admitted || a.ID != mine.ID {
				t.Fatalf("after %v: %+v", time.Since(began), a)
			}
			if a := one.admit(`{"uid": 42, "api": "export"}`); a.Admitted {
				t.Fatalf("after %v there is another one", time.Since(began))
			}
			return time.Since(began) > 4*time.Second
		})
		two.end("/v1/done", mine.Token)
		testrun.Eventually(t, "it has ended", func() bool { return one.admit(`{"uid": 42, "api": "export"}`).Admitted })
		testrun.Eventually(t, "nobody renews this one", func() bool { return one.admit(`{"uid": 42, "api": "export"}`).Admitted })
	})
}

func TestPermitsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	p := newPermits(t, testRedis(t))
	r := p.server(t)
	var all sync.WaitGroup
	answers := make([]permit, 5)
	began := time.Now()
	for i := range answers {
		all.Go(func() { answers[i] = r.admit(`{"uid": 42, "api": "turn", "wait": "3s"}`) })
	}
	all.Wait()
	if took := time.Since(began); took < 1190*time.Millisecond {
		t.Errorf("five left within %v, one each 300 ms", took)
	}
	waited := 0
	for i, a := range answers {
		if !a.Admitted {
			t.Errorf("%d: %+v", i, a)
		}
		if a.Waited > 200 {
			waited++
		}
	}
	if waited < 4 { // an answer that took long counts, too
		t.Errorf("%d waited, want 4", waited)
	}
	if a := r.admit(`{"uid": 42, "api": "rare"}`); !a.Admitted {
		t.Errorf("%+v", a)
	}
	if a := r.admit(`{"uid": 42, "api": "rare"}`); a.Admitted || a.Action != "throttle" || a.RetryAfter < 3000 || a.RetryAfter > 3601 {
		t.Errorf("without a wait: %+v", a)
	}
}

// noted are events that an admitter emits.
type noted struct {
	mu  sync.Mutex
	all []event.Event
}

func (n *noted) Emit(e event.Event) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
	return true
}

// A permit's token has its whole event: any instance emits it, and a repetition has the same id.
func TestDoneEmitsTheEvent(t *testing.T) {
	p := newPermits(t, testRedis(t))
	var events noted
	emits := func(c *admit.Config) { c.Events = &events }
	one, two, silent := p.server(t, emits), p.server(t, emits), p.server(t)
	began := time.Now().Truncate(time.Millisecond)
	a := one.admit(`{"uid": "4\"2", "ip": "::ffff:10.1.2.3", "api": "upload", "attrs": {"bytes": 7e1, "name": "ä", "big": true}, "cost": 1.25}`)
	if !a.Admitted || a.Token == "" {
		t.Fatalf("%+v", a)
	}
	done := `{"token": "` + a.Token + `", "outcome": "success"}`
	for _, r := range []*rig{two, one} {
		if e := decode[ended](t, r.send("/v1/done", done)); !e.Ended || !e.Emitted || e.Elsewhere {
			t.Errorf("%+v", e)
		}
	}
	if e := decode[ended](t, silent.send("/v1/done", done)); e.Emitted {
		t.Errorf("an instance that emits nothing says that it has: %+v", e)
	}
	if len(events.all) != 2 {
		t.Fatalf("%d events", len(events.all))
	}
	e := events.all[0]
	bytes, _ := e.Attr("bytes")
	name, _ := e.Attr("name")
	big, _ := e.Attr("big")
	if e.UID != `4"2` || e.IP.String() != "10.1.2.3" || e.API != "upload" || e.Outcome != "success" || e.Cost != 125*event.One/100 || e.ID != a.Permit || e.Permit.ID != a.Permit ||
		bytes.Kind != event.Number || bytes.Text != "70" || name.Text != "ä" || big.Kind != event.Bool || e.Time.Time().Before(began) || e.Time.Time().After(time.Now()) {
		t.Errorf("%+v", e)
	}
	if events.all[1].ID != e.ID {
		t.Error("a repetition has another id: it would count twice")
	}
	if b := one.admit(`{"uid": "42", "api": "other"}`); b.Token == "" || !decode[ended](t, two.send("/v1/done", `{"token": "`+b.Token+`"}`)).Emitted {
		t.Errorf("what no strict rule is for: %+v", b)
	}
	if c := one.admit(`{"uid": "42", "api": "upload", "attrs": {"bytes": 1}}`); one.end("/v1/cancel", c.Token).Emitted || len(events.all) != 3 {
		t.Error("what did not happen has an event")
	}
}

func TestWhileNobodyKnows(t *testing.T) {
	closed, err := admit.New(admit.Config{Redis: (&permits{t: t, addr: "127.0.0.1:1"}).client()}) // it never runs
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, withAdmitter(closed)).blocks()
	if a := r.admit(`{"uid": 42, "api": "sms.send"}`); a.Admitted || !a.InDoubt || !a.Limited || a.RetryAfter != 1 || a.Reason == "" {
		t.Errorf("%+v", a)
	}
	open, err := admit.New(admit.Config{Redis: (&permits{t: t, addr: "127.0.0.1:1"}).client(), OnDoubt: admit.Open})
	if err != nil {
		t.Fatal(err)
	}
	r = newRig(t, withAdmitter(open)).blocks()
	if a := r.admit(`{"uid": 42, "api": "sms.send"}`); !a.Admitted || !a.InDoubt || a.Limited || a.Reason == "" {
		t.Errorf("%+v", a)
	}
}

func TestWishesThatAreWrong(t *testing.T) {
	p := newPermits(t, testRedis(t))
	r := p.server(t)
	long := strings.Repeat("x", 200)
	for body, want := range map[string]string{
		``:                                     "it is empty",
		`{"uid": 1}`:                           "api is required",
		`{"api": "a", "user": 1}`:              `unknown field "user"`,
		`{"api": "a", "hold": "5m"}`:           "a permit is held for as long as its rule says",
		`{"api": "a", "cost": 0}`:              "cost: 0 is not a number above 0",
		`{"api": "a", "cost": -1}`:             "cost: -1 is not",
		`{"api": "a", "cost": "2"}`:            "cost: \"2\" is not",
		`{"api": "a", "cost": 1e40}`:           "",
		`{"api": "a", "wait": "soon"}`:         "is no time span",
		`{"api": "a", "ip": "x"}`:              "is not an IPv4 or IPv6 address",
		`{"api": "a", "id": "` + long + `"}`:   "at most 120 printable characters",
		`{"api": "a", "id": "two words"}`:      "without spaces",
		`{"api": "a", "id": "\u0000"}`:         "without spaces",
		`{"api": "` + long + `"}`:              "api has 200 bytes",
		`{"api": "a\u0001"}`:                   "control character",
		`{"api": "a", "attrs": ` + many(33):    "at most 32",
		`{"api": "a", "attrs": {"x": [1]}}`:    "an attribute is a string",
		`{"checks": [{"api": "a"}]}`:           `unknown field "checks"`,
		`{"api": "a"}{"api": "b"}`:             "more than one JSON value",
		`{"api": "a", "attrs": {"x": 1e9999}}`: "",
	} {
		resp := r.send("/v1/admit", body)
		if want == "" && resp.StatusCode == http.StatusOK {
			continue
		}
		wantProblem(t, body, resp, http.StatusBadRequest, want)
	}
	good := r.admit(`{"uid": 42, "api": "sms.send"}`).Token
	for body, want := range map[string]string{
		`{}`:                                "token is required",
		`{"permit": "x"}`:                   `unknown field "permit"`,
		`{"token": "x"}`:                    "this is no permit's token",
		`{"token": "1."}`:                   "it was cut or changed",
		`{"token": "1.AAAA"}`:               "it was cut or changed",
		`{"token": "2` + good[1:] + `"}`:    "this is no permit's token",
		`{"token": "` + good[:9] + `"}`:     "it was cut or changed",
		`{"token": "` + good + `A"}`:        "it was cut or changed",
		`{"token": "` + flip(good) + `"}`:   "it was cut or changed",
		`{"token": "` + good + `", "id":1}`: `unknown field "id"`,
	} {
		wantProblem(t, body, r.send("/v1/done", body), http.StatusBadRequest, want)
		wantProblem(t, body, r.send("/v1/cancel", body), http.StatusBadRequest, want)
	}
	wantProblem(t, "an outcome of nothing", r.send("/v1/cancel", `{"token": "`+good+`", "outcome": "success"}`), http.StatusBadRequest, "use /v1/done")
}

// many are so many attributes, and the end of the body.
func many(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"a%d": 1`, i))
	}
	return "{" + strings.Join(all, ",") + "}}"
}

// flip changes a character in the middle.
func flip(token string) string {
	middle := len(token) / 2
	other := "A"
	if token[middle] == 'A' {
		other = "B"
	}
	return token[:middle] + other + token[middle+1:]
}

// What changes something is for services, and on loopback for all programs, but for no page.
func TestWhoMayAskForPermits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	// sha256 of "secret", and of "other"
	text := `[{"name": "shop", "role": "service", "sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"},
		{"name": "ann", "role": "viewer", "sha256": "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"}]`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	local, public := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	a := newPermits(t, testRedis(t)).admitter()
	for i, c := range []struct {
		name   string
		cfg    access.Config
		header [2]string
		want   int
	}{
		{"loopback", access.Config{Addr: local}, [2]string{}, 200},
		{"a page of the web, on loopback", access.Config{Addr: local}, [2]string{"Origin", "http://evil.example"}, 403},
		{"a form, on loopback", access.Config{Addr: local}, [2]string{"Content-Type", "text/plain"}, 415},
		{"elsewhere", access.Config{Addr: public}, [2]string{}, 401},
		{"elsewhere, a service", access.Config{Addr: public, Tokens: file}, [2]string{"Authorization", "Bearer secret"}, 200},
		{"elsewhere, a viewer", access.Config{Addr: public, Tokens: file}, [2]string{"Authorization", "Bearer other"}, 403},
		{"elsewhere, another token", access.Config{Addr: public, Tokens: file}, [2]string{"Authorization", "Bearer secrets"}, 401},
		{"loopback with tokens", access.Config{Addr: local, Tokens: file}, [2]string{}, 401},
	} {
		guard, err := access.New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(cfg *decision.Config) { cfg.Guard, cfg.Admit = guard, a }).blocks()
		token := ""
		for _, path := range []string{"/v1/admit", "/v1/done", "/v1/cancel"} {
			body := fmt.Sprintf(`{"uid": "%d", "api": "export"}`, i) // nobody waits for who was before
			if path != "/v1/admit" {
				body = `{"token": "` + cmp.Or(token, "1.") + `"}`
			}
			req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			req.Host = "127.0.0.1:1"
			if req.Header.Set("Content-Type", "application/json"); c.header[0] != "" {
				req.Header.Set(c.header[0], c.header[1])
			}
			resp := r.do(req)
			if resp.StatusCode != c.want {
				t.Errorf("%s, %s: %d, want %d", c.name, path, resp.StatusCode, c.want)
			} else if path == "/v1/admit" && c.want == http.StatusOK {
				token = decode[permit](t, resp).Token
			}
		}
		testrun.Eventually(t, "what was asked for is given back", func() bool { return a.Stats().CancelsWaiting == 0 })
	}
}

// A caller cannot choose that nobody knows: with --on-doubt open an id that had ended let in 100 of 100.
func TestAWrongQuestionIsADenial(t *testing.T) {
	onEachRedis(t, func(t *testing.T, p *permits) {
		r := p.server(t, func(c *admit.Config) { c.OnDoubt = admit.Open })
		gone := r.admit(`{"uid": 42, "api": "sms.send", "id": "gone"}`)
		r.end("/v1/cancel", gone.Token)
		testrun.Eventually(t, "it is given back", func() bool { return r.metrics()["tallygate_admit_cancels_total done"] == 1 })
		r.admit(`{"uid": 42, "api": "sms.send", "id": "busy"}`)
		for body, says := range map[string]string{
			`{"uid": 42, "api": "sms.send", "id": "gone"}`:            "has ended",
			`{"uid": 42, "api": "sms.send", "id": "busy", "cost": 2}`: "another action",
			`{"uid": 42, "api": "sms.send", "cost": 1.5}`:             "cannot count",
		} {
			for range 5 {
				if a := r.admit(body); a.Admitted || a.InDoubt || !a.Limited || a.Rule != "daily" || a.Action == "" || a.Limit != nil || !strings.Contains(a.Reason, says) {
					t.Errorf("%s: %+v", body, a)
				}
			}
		}
		for reason := range strings.FieldsSeq("ended taken uncountable") {
			if got := r.metrics()["tallygate_admits_refused_total "+reason]; got != 5 {
				t.Errorf("%v %s", got, reason)
			}
		}
	})
}

// Who finds others waiting for a limit that throttles, and cannot wait, is denied by it.
func TestWhoCannotWaitIsTurnedAwayByTheLimit(t *testing.T) {
	t.Parallel()
	p := newPermits(t, testRedis(t))
	r := p.server(t)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { r.admit(`{"uid": 42, "api": "turn", "wait": "3s"}`) })
	}
	denied := 0
	testrun.Eventually(t, "one is denied", func() bool {
		a := r.admit(`{"uid": 42, "api": "turn", "wait": "1ms"}`)
		if a.InDoubt || !a.Admitted && (a.Action != "throttle" || a.Rule == "" || a.RetryAfter < 1 || a.most() == 0) {
			t.Errorf("%+v", a)
		}
		if !a.Admitted {
			denied++
		}
		return denied > 10
	})
	all.Wait()
}
