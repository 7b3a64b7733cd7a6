package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const liteLLMRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: litellm}
spec:
  rules:
    - name: user-usd
      public: budget
      key: uid
      match: {api: llm.call}
      count: {sum: attrs.usd}
      limit: 0.012
      per: day
      window: calendar
      strict: {hold: 1m}
      then: {block: until-reset}
`

const (
	liteLLMKey    = "sk-9f8e7d6c5b4a39281706f5e4d3c2b1a0"
	liteLLMConfig = `model_list:
  - model_name: large
    litellm_params: {model: openai/large, api_base: "%s/v1", api_key: none, input_cost_per_token: 0.000005, output_cost_per_token: 0.000025}
litellm_settings: {callbacks: tallygate.litellm.callback, num_retries: 0}
general_settings: {master_key: %s}
`
)

// The real proxy of LiteLLM, with a model that says words: calls are paid by what they used, streams too, one that
// failed costs nothing, one that broke off what had come, and when no call fits any more the client gets LiteLLM's 429.
func TestLiteLLM(t *testing.T) {
	servers.Nightly(t, "litellm")
	py := script(t, "python.sh", "litellm")
	in := install(t, liteLLMRules)
	model := httptest.NewServer(http.HandlerFunc(modelOfWords))
	t.Cleanup(model.Close)
	base := liteLLM(t, py, in, model.URL)

	testrun.Eventually(t, "a call is let in", func() bool { // the decision server has the rules then
		status, _, _ := completion(t, base, "plain", false)
		return status == http.StatusOK
	})
	for _, c := range []struct {
		says   string
		stream bool
		status int
	}{{"fails", false, 500}, {"fails", true, 500}, {"plain", true, 200}, {"breaks", true, 200}} {
		if status, _, body := completion(t, base, c.says, c.stream); status != c.status {
			t.Fatalf("%+v: %d %s", c, status, body)
		}
	}
	// A call reserves some 0.0025 USD, and uses 0.0005.
	var header http.Header
	var body string
	testrun.Eventually(t, "no call fits any more", func() bool {
		status, h, b := completion(t, base, "plain", false)
		header, body = h, b
		return status == http.StatusTooManyRequests
	})
	if header.Get("Retry-After") == "" || !strings.Contains(header.Get("RateLimit"), `"budget";r=0`) || !strings.Contains(body, `"error"`) || strings.Contains(body, "user-usd") {
		t.Errorf("who is denied is told %v %s", header, body)
	}
	spent := 0.0
	testrun.Eventually(t, "all have events", func() bool {
		var kinds map[string]int
		spent, kinds = liteLLMEvents(t, in)
		return kinds["success"] >= 4 && spent > 0.003
	})
	if spent > 0.012 {
		t.Errorf("%v USD are spent of 0.012", spent)
	}
}

// liteLLM runs the proxy, and returns its URL.
func liteLLM(t *testing.T, py string, in installation, model string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, liteLLMConfig, model, liteLLMKey), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := filepath.Abs("python/src")
	if err != nil {
		t.Fatal(err)
	}
	addr := servers.FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(py, "-c", "from litellm import run_server; run_server()", "--config", config, "--host", "127.0.0.1", "--port", port)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+src, "PYTHONDONTWRITEBYTECODE=1", "LITELLM_LOCAL_MODEL_COST_MAP=True",
		"TALLYGATE="+in.decision, "KAFKA="+in.brokers, "TALLYGATE_TOPIC="+in.prefix+".events")
	launch(t, false, cmd)
	base := "http://" + addr
	testrun.Eventually(t, "LiteLLM serves", func() bool { return get(t, base+"/health/liveliness") != "" })
	return base
}

// completion asks LiteLLM for one.
func completion(t *testing.T, base, says string, stream bool) (status int, header http.Header, body string) {
	t.Helper()
	text := fmt.Sprintf(`{"model": "large", "max_tokens": 100, "stream": %v, "messages": [{"role": "user", "content": %q}]}`, stream, says)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/chat/completions", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+liteLLMKey)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(all)
}

// modelOfWords answers as OpenAI's API does: 20 words, or an error, or a stream that breaks off.
func modelOfWords(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Stream   bool
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Messages) == 0 {
		http.Error(w, "no messages", http.StatusBadRequest)
		return
	}
	const usage = `{"prompt_tokens":7,"completion_tokens":20,"total_tokens":27}`
	w.Header().Set("Content-Type", "application/json")
	if q.Messages[0].Content == "fails" {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"error":{"message":"no","type":"server_error"}}`)
		return
	}
	if !q.Stream {
		fmt.Fprint(w, `{"id":"x","object":"chat.completion","created":1,"model":"large","usage":`+usage+
			`,"choices":[{"index":0,"message":{"role":"assistant","content":"words"},"finish_reason":"stop"}]}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	const chunk = `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"large","choices":[%s],"usage":%s}` + "\n\n"
	for i := range 20 {
		fmt.Fprintf(w, chunk, `{"index":0,"delta":{"role":"assistant","content":"word "},"finish_reason":null}`, "null")
		_ = http.NewResponseController(w).Flush()
		if i == 5 && q.Messages[0].Content == "breaks" {
			panic(http.ErrAbortHandler)
		}
	}
	fmt.Fprintf(w, chunk, `{"index":0,"delta":{},"finish_reason":"stop"}`, "null")
	fmt.Fprintf(w, chunk, "", usage)
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// liteLLMEvents looks at the events: what is spent, and how many have each outcome.
func liteLLMEvents(t *testing.T, in installation) (usd float64, kinds map[string]int) {
	t.Helper()
	kinds = map[string]int{}
	for p := range installed {
		for _, m := range read(t, strings.Split(in.brokers, ","), in.prefix+".events", p) {
			e := decode(t, m.Value)
			price, _ := e.Attr("usd")
			amount, err := strconv.ParseFloat(price.Text, 64)
			if err != nil {
				t.Error(err)
			}
			key, _ := e.Attr("key")
			if e.API != "llm.call" || e.UID == "" || e.Permit.ID == "" || len(key.Text) != 16 || strings.Contains(string(m.Value), liteLLMKey) {
				t.Errorf("an event is %s", m.Value)
			}
			usd += amount
			kinds[e.Outcome]++
		}
	}
	return usd, kinds
}
