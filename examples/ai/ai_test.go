package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/tallygatetest"
)

// shop is the proxy in front of a model, with an engine in the test's process.
type shop struct {
	t   *testing.T
	h   *tallygatetest.Harness
	url string
}

func newShop(t *testing.T, model http.Handler) *shop {
	h := tallygatetest.New(t, "rules.yaml")
	return &shop{t, h, serve(t, model, h.Middleware)}
}

// serve serves the proxy, and a model behind it.
func serve(t *testing.T, model http.Handler, middleware func(httplimit.Options) func(http.Handler) http.Handler) string {
	t.Helper()
	prices, err := readPrices("prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	to := "http://127.0.0.1:1" // nobody
	if model != nil {
		behind := httptest.NewServer(model)
		t.Cleanup(behind.Close)
		to = behind.URL
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(proxy(u, prices, middleware))
	t.Cleanup(front.Close)
	return front.URL
}

func ask(ctx context.Context, t *testing.T, base, user, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Org": "acme", "X-Team": "web", "X-User": user, "Idempotency-Key": "one"} {
		r.Header.Set(name, value)
	}
	return http.DefaultClient.Do(r)
}

// answer makes a call, and returns all of its answer.
func answer(t *testing.T, base, user, body string) (status int, header http.Header, text string) {
	t.Helper()
	got, err := ask(t.Context(), t, base, user, body)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, got.Header, string(all)
}

// says is a call in which a model may say so many words, and says some.
func says(model string, most, words int, more string) string {
	return fmt.Sprintf(`{"model": %q, "max_tokens": %d, "messages": [{"role": "user", "content": "say %d words"}]%s}`, model, most, words, more)
}

// counted waits until so much is counted of a key.
func (s *shop) counted(limit, key string, want float64) {
	s.t.Helper()
	testrun.Eventually(s.t, fmt.Sprintf("%s of %s is %v", limit, key, want), func() bool { return s.h.Count(limit, key) == want })
}

func TestACallIsPaidByAllThreeLevels(t *testing.T) {
	s := newShop(t, fakeModel(0))
	status, header, text := answer(t, s.url, "42", says("large", 10_000, 2000, ""))
	if status != 200 || !strings.Contains(text, `"completion_tokens":2000`) || !strings.HasPrefix(header.Get("RateLimit"), `"user-budget";r=0`) {
		t.Errorf("%d %v %.80s", status, header, text)
	}
	for limit, key := range map[string]string{
		"organisation-usd-month": "attrs.org=acme", "team-usd-day": "attrs.org=acme&attrs.team=web", "user-usd-day": "uid=42",
	} {
		s.counted(limit, key, (3*5+2000*25)/1e6)
	}
	s.counted("user-tokens-minute", "uid=42", 2003)
	if status, _, _ := answer(t, s.url, "42", says("large", 10_000, 400, "")); status != 200 { // the rest was free again
		t.Errorf("a second call: %d", status)
	}
}

// Clients read the error in the form that they know.
func TestTooMuchIsDenied(t *testing.T) {
	s := newShop(t, fakeModel(0))
	status, header, text := answer(t, s.url, "42", says("large", 20_001, 1, ""))
	var told struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		t.Fatal(err)
	}
	if status != 429 || told.Error.Type != "user-budget" || told.Error.Code != "rate_limit_exceeded" || told.Error.Message == "" ||
		header.Get("Retry-After") == "" || header.Get("RateLimit") == "" || header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s", status, header, text)
	}
	if status, _, text := answer(t, s.url, "42", says("small", 60_000, 1, "")); status != 429 || !strings.Contains(text, `"tokens"`) {
		t.Errorf("more tokens than a minute has: %d %s", status, text)
	}
	for range 2 {
		if status, _, _ := answer(t, s.url, "42", says("large", 9_000, 9_000, "")); status != 200 {
			t.Errorf("within the budget: %d", status)
		}
	}
	if status, _, _ := answer(t, s.url, "42", says("large", 9_000, 1, "")); status != 429 {
		t.Errorf("over the budget: %d", status)
	}
	if status, _, _ := answer(t, s.url, "43", says("large", 9_000, 1, "")); status != 200 {
		t.Errorf("somebody else of the team: %d", status)
	}
}

// A stream comes as the model speaks, and its usage is asked for where the client does not.
func TestStreamsPass(t *testing.T) {
	heard := make(chan struct{})
	var once sync.Once
	s := newShop(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream_options":{"include_usage":true}`)) || r.Header.Get("X-User") != "" {
			t.Errorf("the model is asked %s with %v", body, r.Header)
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"first\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-heard:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":20}}\r\n\r\ndata: [DONE]\n\n")
	}))
	got, err := ask(t.Context(), t, s.url, "42", says("small", 100, 3, `, "stream": true`))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	lines := bufio.NewScanner(got.Body)
	last := ""
	for lines.Scan() {
		once.Do(func() { close(heard) }) // the first token is here, while the model waits
		last += lines.Text()
	}
	if !strings.HasSuffix(last, "data: [DONE]") {
		t.Errorf("the stream is %s", last)
	}
	s.counted("user-tokens-minute", "uid=42", 27)
}

// What did not happen costs nothing, and what nobody knows costs all that was reserved.
func TestFailures(t *testing.T) {
	body := says("small", 3000, 3, "")
	reserved := float64((len(body)+2)/3 + 3000)
	for what, c := range map[string]struct {
		model  http.Handler
		status int
		tokens float64
	}{
		"nobody listens": {nil, 502, 0},
		"refused":        {status(400), 400, 0},
		"overloaded":     {status(503), 503, 0},
		"it hangs up":    {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), 502, reserved},
		"without usage": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[]}`)
		}), 200, reserved},
		"a usage of nonsense": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":-5,"completion_tokens":8}}`)
		}), 200, 8},
		"a stream without usage": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"123456789\"}}]}\n\ndata: [DONE]")
		}), 200, reserved - 3000 + 3},
	} {
		t.Run(what, func(t *testing.T) {
			s := newShop(t, c.model)
			if status, _, text := answer(t, s.url, "42", body); status != c.status {
				t.Errorf("%d %s", status, text)
			}
			if status, _, text := answer(t, s.url, "42", says("small", 3000, 3, ` `)); status != c.status { // each try counts
				t.Errorf("%d %s", status, text)
			}
			s.counted("user-tokens-minute", "uid=42", 2*c.tokens+extra(c.tokens, reserved))
		})
	}
}

// extra is the larger reservation of the second try, whose body is longer.
func extra(tokens, reserved float64) float64 {
	longer := float64((len(says("small", 3000, 3, " "))+2)/3+3000) - reserved
	if tokens < reserved-3000 {
		return 0
	}
	return longer
}

func status(n int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, n, "", "no") })
}

// A client that leaves has used its prompt, and what had come; one that leaves before that all that was reserved,
// since nobody knows what the model does meanwhile.
func TestClientsThatLeave(t *testing.T) {
	body := says("small", 3000, 3, `, "stream": true`)
	prompt := float64((len(body) + 2) / 3)
	for _, c := range []struct {
		what   string
		first  string
		tokens float64
	}{
		{"amid the stream", "data: {\"choices\":[{\"delta\":{\"content\":\"12345\"}}]}\n\n", prompt + 2},
		{"before an answer", "", prompt + 3000},
	} {
		t.Run(c.what, func(t *testing.T) {
			asked, left := make(chan struct{}, 1), make(chan struct{}, 1)
			s := newShop(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // the server then sees when the client leaves
				if c.first != "" {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, c.first)
					_ = http.NewResponseController(w).Flush()
				}
				asked <- struct{}{}
				<-r.Context().Done()
				left <- struct{}{}
			}))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			done := make(chan struct{})
			go func() {
				defer close(done)
				got, err := ask(ctx, t, s.url, "42", body)
				if err != nil {
					return
				}
				defer got.Body.Close()
				_, _ = io.ReadFull(got.Body, make([]byte, len(c.first)))
				leave()
			}()
			<-asked
			if c.first == "" {
				leave()
			}
			<-done
			<-left // the model is told to stop
			s.counted("user-tokens-minute", "uid=42", c.tokens)
		})
	}
}

func TestRequestsThatAreWrong(t *testing.T) {
	s := newShop(t, fakeModel(0))
	for _, body := range []string{
		``, `[]`, `{`, `{"model": "unknown"}`, says("small", 0, 1, ""), says("small", -5, 1, ""), says("small", 2<<20, 1, ""),
		says("small", 1, 1, `, "n": 1000`), says("small", 1, 1, `, "n": -1`), `{"model": "` + strings.Repeat("x", maxBody) + `"}`,
	} {
		if status, _, text := answer(t, s.url, "42", body); status != 400 || !strings.Contains(text, "invalid_request_error") {
			t.Errorf("%.80s: %d %s", body, status, text)
		}
	}
	if n := s.h.Count("user-tokens-minute", "uid=42"); n != 0 {
		t.Errorf("%v tokens are counted", n)
	}
}

// What is reserved is the most that a model may read. It may take Max_Tokens for max_tokens, as encoding/json does, or
// not; and of two bounds it may go by either.
func TestAReservationIsOfWhatTheModelReads(t *testing.T) {
	for fields, wrong := range map[string]bool{
		`"max_tokens": 3000`:                             false,
		`"max_completion_tokens": 1, "max_tokens": 3000`: false,
		`"max_completion_tokens": 3000, "max_tokens": 1`: false,
		`"max_completion_tokens": 3000`:                  false,
		`"max_tokens": 1000, "n": 3`:                     false,
		`"max_tokens": 1, "max_tokens": 3000`:            false,
		`"max_tokens": 3000, "Max_Tokens": 1`:            true,
		`"max_tokens": 1, "MAX_TOKENS": 3000`:            true,
		`"max_tokens": 1000, "n": 3, "N": 1`:             true,
		`"max_tokens": 3000, "Model": "large"`:           true,
	} {
		body := `{"model": "small", ` + fields + `, "messages": [{"role": "user", "content": "say 1 words"}]}`
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		c, err := read(httptest.NewRecorder(), r, map[string]price{"small": {1, 2}, "large": {1000, 2000}})
		if wrong || err != nil {
			if !wrong || err == nil {
				t.Errorf("%s: %+v, %v", fields, c, err)
			}
			continue
		}
		if c.price != (price{1, 2}) || c.most.Completion != 3000 {
			t.Errorf("%s: %+v is reserved", fields, *c)
		}
	}
}

func TestPricesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{"a,b,c": "row 1", "model,input,output\nx,1": "wrong number", "x,-1,2": "no price", "x,1": "2 columns"} {
		path := filepath.Join(t.TempDir(), "prices.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readPrices(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := readPrices("none.csv"); err == nil {
		t.Error("a missing table is no table")
	}
}

// The real pipeline: many calls at once never spend more than the team's dollar.
func TestATeamsDollarOnTheRealPipeline(t *testing.T) {
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{}) // it ends after its users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	var log bytes.Buffer
	running.Go(func() {
		args := []string{"--kafka", stack.Kafka[0], "--redis", stack.Redis, "--rules", "rules.yaml", "--partitions", "2",
			"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "error"}
		if status := aggregator.Command(ctx, args, io.Discard, &log, testrun.NoEnv); status != 0 {
			t.Errorf("the aggregator ends with %d: %s", status, &log)
		}
	})
	guard, err := tallygate.Open(t.Context(), tallygate.Config{Redis: stack.Redis, Kafka: stack.Kafka[:1], Admit: admit.With(admit.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guard.Close(context.WithoutCancel(t.Context())) })
	if err := guard.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	base := serve(t, fakeModel(0), guard.Middleware)
	testrun.Eventually(t, "calls are let in", func() bool {
		status, _, _ := answer(t, base, "first", says("small", 1, 1, ""))
		return status == 200
	})
	var mu sync.Mutex
	spent, denied := 0.0, 0
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			for range 8 { // 16 × 8 × 2 cents would be 2.56 USD
				status, _, text := answer(t, base, fmt.Sprint("u", i), says("large", 1000, 800, ""))
				mu.Lock()
				switch status {
				case 200:
					spent += (3*5 + 800*25) / 1e6
				case 429:
					denied++
				default:
					t.Errorf("%d %s", status, text)
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if spent > 1 || spent < 0.5 || denied == 0 {
		t.Errorf("%v USD are spent, and %d calls denied", spent, denied)
	}
}
