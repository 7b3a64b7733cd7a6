package tallygatetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/tallygatetest"
	"github.com/tallygate/tallygate/verdict"
)

// these are rules in a file.
func these(list string) tallygatetest.Rules {
	return tallygatetest.Rules("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n  rules:\n" + list)
}

// visitor asks a handler as a user, and returns the answer.
func visitor(h http.Handler) func(user, path string) *httptest.ResponseRecorder {
	return func(user, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
}

func ok(http.ResponseWriter, *http.Request) {}

// Five requests are allowed and the sixth is not; a minute later one is again. Everything that a caller is
// told is by the test's clock.
func TestTheSixthRequestIsDenied(t *testing.T) {
	h := tallygatetest.New(t, these("    - {name: orders, public: orders, match: {api: order.create}, limit: 5, per: 1m, window: tumbling, quota: true, then: {block: until-reset}}\n"))
	visit := visitor(h.Middleware(httplimit.Options{
		UID: httplimit.Header("X-User"), API: httplimit.Constant("order.create"), Answers: enforce.Answers{XRateLimit: true},
	})(http.HandlerFunc(ok)))
	h.Advance(20 * time.Second)
	for i := range 5 {
		if left := visit("7", "/").Header().Get("RateLimit"); i > 0 && left != fmt.Sprintf(`"orders";r=%d;t=40`, 5-i) {
			t.Errorf("request %d is told %s", i+1, left)
		}
	}
	w := visit("7", "/")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "40" || w.Header().Get("X-RateLimit-Reset") != fmt.Sprint(tallygatetest.Start.Unix()+60) {
		t.Errorf("the sixth request: %d, %v", w.Code, w.Header())
	}
	if !strings.Contains(w.Body.String(), `"until":"2026-01-05T00:01:00Z"`) {
		t.Errorf("the answer is %s", w.Body)
	}
	if v := h.Verdict("uid=7", "order.create"); v == nil || v.Rule != "orders" || v.Count != 5*event.One || v.Since != event.FromTime(h.Now()) {
		t.Errorf("in force is %+v", v)
	}
	if h.Verdict("uid=8", "order.create") != nil || visit("8", "/").Code != http.StatusOK {
		t.Error("another user is denied, too")
	}
	h.Advance(40*time.Second - time.Microsecond)
	if !h.Blocked("uid=7", "order.create") || h.Count("orders", "uid=7") != 5 {
		t.Error("it is over a microsecond too early")
	}
	h.Advance(time.Microsecond)
	if h.Blocked("uid=7", "order.create") || h.Count("orders", "uid=7") != 0 || visit("7", "/").Code != http.StatusOK {
		t.Error("a minute later it is still denied")
	}
	if h.Table().Stale() || !h.Table().Ready() {
		t.Error("the table is stale")
	}
}

// What operators do works on keys, as in an installation: a wide unblock reaches all keys of a user.
func TestCommands(t *testing.T) {
	h := tallygatetest.New(t, these(`    - {name: logins, match: {api: login}, limit: 2, per: 1h, then: {block: 1h}}
    - {name: by-plan, key: [attrs.plan, uid], match: {api: login}, limit: 2, per: 1h, then: {block: 1h}}
`))
	login := func(n int) {
		for range n {
			h.Emit(event.Event{UID: "7", API: "login", Attrs: []event.Attr{{Name: "plan", Value: event.StringValue("pro")}}})
		}
	}
	is := func(blocked bool, when string) {
		t.Helper()
		for _, who := range []string{"uid=7", "attrs.plan=pro&uid=7"} {
			if h.Blocked(who, "login") != blocked {
				t.Errorf("%s: %s is blocked: %v", when, who, !blocked)
			}
		}
	}
	login(3)
	is(true, "three logins")
	h.Unblock("uid=7")
	is(false, "unblocked")
	if h.Count("logins", "uid=7") != 3 || h.Count("by-plan", "attrs.plan=pro&uid=7") != 3 {
		t.Error("an unblock forgets what was counted")
	}
	login(1)
	is(true, "one more login")
	h.Reset("uid=7", "logins", "by-plan")
	is(false, "reset")
	if h.Count("logins", "uid=7") != 0 || h.Count("by-plan", "attrs.plan=pro&uid=7") != 0 {
		t.Error("a reset keeps what was counted")
	}
	h.Exempt("uid=7", time.Hour)
	login(9)
	is(false, "exempt")
	h.Exempt("uid=7", 0)
	login(1)
	is(true, "the exemption was ended")
	h.Reset("uid=7")
	h.Block("uid=7", 10*time.Minute, "a stolen card")
	is(true, "blocked by hand")
	if v := h.Verdict("uid=7", "anything"); v == nil || v.Rule != verdict.Manual {
		t.Errorf("in force is %+v", v)
	}
	h.Advance(10 * time.Minute)
	is(false, "ten minutes later")
	h.Block("ip=2001:db8::1", time.Minute, "a scanner")
	if !h.Blocked("ip=2001:db8::1&uid=8", "login") {
		t.Error("an address is not blocked that no rule counts by")
	}
}

// An event's own time counts, as far as max_lateness allows. The system's clock, by which middlewares tell
// when a request began, has no part in it.
func TestWhichTimeCounts(t *testing.T) {
	h := tallygatetest.New(t, these("    - {name: logins, match: {api: login}, limit: 9, per: day, window: calendar, timezone: UTC, then: {block: until-reset}}\n"))
	count := func(want float64, what string) {
		t.Helper()
		if got := h.Count("logins", "uid=7"); got != want {
			t.Errorf("%s: %v are counted, want %v", what, got, want)
		}
	}
	h.AdvanceTo(time.Date(2026, time.February, 1, 0, 30, 0, 0, time.UTC))
	h.Emit(event.Event{UID: "7", API: "login", Time: event.FromTime(h.Now().Add(-45 * time.Minute))})
	count(0, "an event of yesterday")
	h.Emit(event.Event{UID: "7", API: "login", Time: event.FromTime(h.Now().Add(-15 * time.Minute))})
	h.Emit(event.Event{UID: "7", API: "login"})
	h.Emit(event.Event{UID: "7", API: "login", Time: event.NoTime, ID: "twice"})
	h.Emit(event.Event{UID: "7", API: "login", ID: "twice", Cost: 2 * event.One})
	count(3, "three of today, one of them twice")
	visitor(h.Middleware(httplimit.Options{UID: httplimit.Header("X-User"), API: httplimit.Constant("login")})(http.HandlerFunc(ok)))("7", "/")
	count(4, "a request")
	h.Emitter().Emit(event.Event{UID: "7", API: "login", Time: event.FromTime(h.Now().Add(-45 * time.Minute))})
	count(4, "an event of yesterday that the service itself emits")
	h.AdvanceTo(time.Date(2026, time.February, 2, 0, 0, 0, 0, time.UTC))
	count(0, "the next day")
}

const coupons = "    - {name: coupons, match: {api: coupon.redeem, outcome: success}, limit: 5, per: 1h, window: tumbling, strict: true}\n"

// However many ask at once, exactly five get a permit; who did nothing gives it back; a permit that nobody
// ends counts when its hold is over; and the window's end makes room.
func TestStrictLimits(t *testing.T) {
	h := tallygatetest.New(t, these(coupons))
	fails := atomic.Bool{}
	handler := h.Middleware(httplimit.Options{UID: httplimit.Header("X-User"), API: httplimit.Constant("coupon.redeem")})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if fails.Load() {
				w.WriteHeader(http.StatusPaymentRequired)
			}
		}))
	visit := visitor(handler)
	rush := func() (let int32) {
		var n atomic.Int32
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				if visit("7", "/").Code != http.StatusTooManyRequests {
					n.Add(1)
				}
			})
		}
		all.Wait()
		return n.Load()
	}
	fails.Store(true)
	for range 9 { // each gives its permit back by its event
		if w := visit("7", "/"); w.Code != http.StatusPaymentRequired {
			t.Fatalf("what is not paid: %d", w.Code)
		}
	}
	fails.Store(false)
	if n := rush(); n != 5 {
		t.Errorf("%d were let in, want 5", n)
	}
	if n := h.Count("coupons", "uid=7"); n != 5 {
		t.Errorf("%v are counted, want 5", n)
	}
	w := visit("7", "/")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "3600" || !strings.Contains(w.Body.String(), `"until":"2026-01-05T01:00:00Z"`) {
		t.Errorf("the sixth: %d, %v, %s", w.Code, w.Header(), w.Body)
	}
	h.Advance(time.Hour)
	ask := func() enforce.Admission {
		a, err := h.Admitter().AdmitRequest(t.Context(), enforce.Request{API: "coupon.redeem", Dims: []event.Dim{{Name: "uid", Value: "7"}}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first, lost := ask(), ask()
	if first.Standing.Limit != 5*event.One || lost.Standing.Remaining != 3*event.One {
		t.Errorf("two permits: %+v, %+v", first.Standing, lost.Standing)
	}
	first.Held.Cancel()
	first.Held.Done("success") // only the first end counts
	if again := ask(); again.Standing.Remaining != 3*event.One {
		t.Errorf("after a cancel: %+v", again.Standing)
	} else {
		again.Held.Cancel()
	}
	h.Advance(31 * time.Second)
	if n := h.Count("coupons", "uid=7"); n != 1 {
		t.Errorf("%v are counted when a permit is lost, want 1", n)
	}
	h.Emit(event.Event{UID: "7", API: "coupon.redeem", Outcome: "success", Permit: lost.Permit})
	if n := h.Count("coupons", "uid=7"); n != 1 {
		t.Errorf("%v are counted when its event comes all the same, want 1", n)
	}
	h.Exempt("uid=7", time.Minute)
	if n := rush(); n != 30 {
		t.Errorf("%d of an exempt key were let in, want 30", n)
	}
}

// "Should its event come later, it counts under all other limits, and not once more under the strict ones":
// however much later, up to max_lateness.
func TestALostPermitCountsOnce(t *testing.T) {
	for _, late := range []time.Duration{31 * time.Second, 9 * time.Minute, 41 * time.Minute, 59 * time.Minute, 61 * time.Minute, 5 * time.Hour} {
		h := tallygatetest.New(t, these(`    - {name: coupons, match: {api: coupon.redeem, outcome: success}, limit: 5, per: day, window: calendar, timezone: UTC, strict: true}
    - {name: all, match: {api: coupon.redeem}, limit: 5, per: day, window: calendar, timezone: UTC, then: {block: 1m}}
`))
		a, err := h.Admitter().AdmitRequest(t.Context(), enforce.Request{API: "coupon.redeem", Dims: []event.Dim{{Name: "uid", Value: "7"}}})
		if err != nil {
			t.Fatal(err)
		}
		h.Advance(late)
		h.Emit(event.Event{UID: "7", API: "coupon.redeem", Outcome: "success", Permit: a.Permit})
		if strict, all := h.Count("coupons", "uid=7"), h.Count("all", "uid=7"); strict != 1 || all != 1 {
			t.Errorf("%v late: %v and %v are counted, want 1 and 1", late, strict, all)
		}
	}
}

// What is under way, and what a process counts for itself.
func TestInFlightAndInstance(t *testing.T) {
	h := tallygatetest.New(t, these(`    - {name: exports, match: {api: report.export}, limit: 2, window: in-flight, strict: true}
    - {name: local, match: {api: report.view}, limit: 3, per: 1m, window: tumbling, scope: instance}
`))
	ask := func(api string) enforce.Admission {
		a, err := h.Admitter().AdmitRequest(t.Context(), enforce.Request{API: api, Dims: []event.Dim{{Name: "uid", Value: "7"}}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, two := ask("report.export"), ask("report.export")
	if !one.Decision.Allowed || !two.Decision.Allowed || one.Permit.ID != "" || ask("report.export").Decision.Allowed {
		t.Error("two exports at once are not exactly two")
	}
	one.Held.Done("success")
	if !ask("report.export").Decision.Allowed {
		t.Error("an export that has ended makes no room")
	}
	for i := range 4 {
		if a := ask("report.view"); a.Decision.Allowed != (i < 3) {
			t.Errorf("view %d is let in: %v", i+1, a.Decision.Allowed)
		} else if i == 3 && a.Decision.RetryAfter() != time.Minute {
			t.Errorf("the fourth may come back after %v", a.Decision.RetryAfter())
		}
	}
	h.Advance(time.Minute)
	if !ask("report.view").Decision.Allowed {
		t.Error("a minute later nobody may view")
	}
}

// A throttled request does not wait: the clock that it would wait for does not move by itself.
func TestThrottledRequestsDoNotWait(t *testing.T) {
	h := tallygatetest.New(t, these("    - {name: slow, match: {api: x}, limit: 1, per: 1s, window: tumbling, then: {block: until-reset, action: throttle}}\n"))
	visit := visitor(h.Middleware(httplimit.Options{UID: httplimit.Header("X-User"), API: httplimit.Constant("x")})(http.HandlerFunc(ok)))
	if a, b := visit("7", "/").Code, visit("7", "/").Code; a != http.StatusOK || b != http.StatusTooManyRequests {
		t.Errorf("%d, %d", a, b)
	}
}

// failing is a test that fails: it keeps what it is told.
type failing struct {
	testing.TB
	mu   sync.Mutex
	told []string
}

func (f *failing) add(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, text)
}

func (f *failing) Helper()                           {}
func (f *failing) Cleanup(func())                    {}
func (f *failing) Log(args ...any)                   { f.add("log: " + fmt.Sprint(args...)) }
func (f *failing) Logf(format string, args ...any)   { f.add("log: " + fmt.Sprintf(format, args...)) }
func (f *failing) Errorf(format string, args ...any) { f.add(fmt.Sprintf(format, args...)) }
func (f *failing) Fatalf(format string, args ...any) {
	f.add(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// run runs a test to its end, and returns what it was told.
func (f *failing) run(test func(testing.TB)) string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(f)
	}()
	<-done
	return strings.Join(f.told, "\n")
}

// A mistake fails the test that makes it, and says where and what to do.
func TestMistakes(t *testing.T) {
	const good = "    - {name: a, match: {api: x}, limits: [{name: one, limit: 1, per: 1h}], then: {block: 1m}}\n    - {name: local, match: {api: y}, limit: 1, per: 1h, scope: instance}\n"
	folder := t.TempDir()
	file := filepath.Join(folder, "rules.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(these(good)), "api: x", "apis: x", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(do func(h *tallygatetest.Harness)) func(testing.TB) {
		return func(t testing.TB) { do(tallygatetest.New(t, these(good))) }
	}
	for want, test := range map[string]func(testing.TB){
		"rules.yaml:6:":                         func(t testing.TB) { tallygatetest.New(t, file) },
		"the test's rules:6:":                   func(t testing.TB) { tallygatetest.New(t, these("    - {nam: a}\n")) },
		"load rules: open none.yaml":            func(t testing.TB) { tallygatetest.New(t, "none.yaml") },
		"cannot go back":                        with(func(h *tallygatetest.Harness) { h.Advance(-time.Second) }),
		`"7" is no key: want for example uid=7`: with(func(h *tallygatetest.Harness) { h.Blocked("7", "x") }),
		"networks follow from ip":               with(func(h *tallygatetest.Harness) { h.Blocked("ip/24=192.0.2.0", "x") }),
		"there are a/one, local":                with(func(h *tallygatetest.Harness) { h.Count("a", "uid=7") }),
		"it counts by uid":                      with(func(h *tallygatetest.Harness) { h.Count("a/one", "ip=192.0.2.1") }),
		"it decides before the action":          with(func(h *tallygatetest.Harness) { h.Count("local", "uid=7") }),
		"is called \"b\"":                       with(func(h *tallygatetest.Harness) { h.Reset("uid=7", "b") }),
		"lasts for more than 0s":                with(func(h *tallygatetest.Harness) { h.Block("uid=7", 0, "a test") }),
		"there is no api":                       with(func(h *tallygatetest.Harness) { h.Emit(event.Event{UID: "7"}) }),
		"at least one of Options.UID":           with(func(h *tallygatetest.Harness) { h.Middleware(httplimit.Options{}) }),
		"log: tallygatetest: no rule counts an event of z": with(func(h *tallygatetest.Harness) {
			h.Emit(event.Event{UID: "7", API: "z"})
		}),
		"is older than the rules' max_lateness": with(func(h *tallygatetest.Harness) {
			h.Emit(event.Event{UID: "7", API: "x", Time: event.FromTime(h.Now().Add(-48 * time.Hour))})
		}),
	} {
		if told := (&failing{}).run(test); !strings.Contains(told, want) {
			t.Errorf("want %q; it was told\n%s", want, told)
		}
	}
}

// Rules may name files beside them.
func TestRulesNameFilesBesideThem(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"office.txt": "192.0.2.0/24\n",
		"rules.yaml": "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n  networks: {office: office.txt}\n  rules:\n    - {name: a, key: ip, match: {api: x}, limit: 1, per: 1h, exempt: [{ip: office, reason: ours}], then: {block: 1m}}\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := tallygatetest.New(t, filepath.Join(folder, "rules.yaml"))
	for _, ip := range []string{"192.0.2.1", "203.0.113.1"} {
		e := event.Event{API: "x"}
		if err := e.IP.UnmarshalText([]byte(ip)); err != nil {
			t.Fatal(err)
		}
		h.Emit(e)
		h.Emit(e)
	}
	if h.Blocked("ip=192.0.2.1", "x") || !h.Blocked("ip=203.0.113.1", "x") {
		t.Error("the office is blocked, or another address is not")
	}
}

// BenchmarkNew measures a test: the rules of the shop, and ten requests.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		h := tallygatetest.New(b, "../examples/shop/rules.yaml")
		for range 10 {
			h.Emit(event.Event{UID: "7", API: "search.query"})
		}
		if !h.Blocked("uid=7", "search.query") {
			b.Fatal("not blocked")
		}
	}
}
