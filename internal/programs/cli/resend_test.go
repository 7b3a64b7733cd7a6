package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// counting starts an aggregator that counts all events of a uid, and returns where its API is.
func counting(t *testing.T, brokers []string, prefix string) string {
	t.Helper()
	addr := servers.FreeAddr(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(countsAll), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		ended <- aggregator.Command(ctx, []string{"--kafka", strings.Join(brokers, ","), "--prefix", prefix, "--partitions", "3", "--rules", rules, "--listen", addr, "--metrics-listen", "127.0.0.1:0", "--log-level", "warn"},
			io.Discard, t.Output(), testrun.NoEnv)
	}()
	t.Cleanup(func() {
		stop()
		if status := <-ended; status != 0 {
			t.Errorf("the aggregator ends with %d", status)
		}
	})
	soon(t, "the aggregator is ready", func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return addr
}

const countsAll = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: all, match: {api: "*"}, limit: 100, per: 1h, then: {block: 1m}}
`

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// From a record that is no event to its mended event being counted, once, however often it is sent, and by whichever way.
func TestADeadLetterIsMendedSentAndCountedOnce(t *testing.T) {
	servers.EachKafka(t, func(t *testing.T, brokers []string) {
		in := &installation{brokers: brokers, prefix: servers.Name(t)}
		servers.DropTopics(t, in.brokers, in.prefix)
		addr := counting(t, in.brokers, in.prefix)
		transport := &kafka.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		in.writer = &kafka.Writer{Transport: transport, Addr: kafka.TCP(in.brokers...), Balancer: byHand{}, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond}
		t.Cleanup(func() { _ = in.writer.Close() })
		in.write(t, ".events", kafka.Message{Partition: 1, Value: []byte(`[{"uid":"42"},{"api":"a.b","uid":"42"},{"api":"","uid":"42"}]`)})
		letters := ""
		soon(t, "there is a dead letter", func() bool {
			letters, _ = in.run(t, 0, "", "dead-letters", "--json")
			return letters != ""
		})
		mended := strings.NewReplacer(`{\"uid\":\"42\"}`, `{\"api\":\"a.b\",\"uid\":\"42\"}`, `\"api\":\"\"`, `\"api\":\"a.c\"`).Replace(letters)
		for i, args := range []string{"", "--by alice", "--now --json", "--direct"} {
			if args != "--direct" {
				args += " --aggregator " + addr
			}
			out, _ := in.run(t, 0, mended, append([]string{"dead-letters", "--send", "-"}, strings.Fields(args)...)...)
			if want := []string{"2 events of 1 record sent, 0 lines", "2 events of", `{"records":1,"events":2,`, "2 events of"}[i]; !strings.HasPrefix(out, want) {
				t.Errorf("%s: %s", args, out)
			}
		}
		in.write(t, ".events", kafka.Message{Partition: 1, Value: []byte(`{"api":"a.b","uid":"42"}`)}) // behind them, where they are
		count := func() (n int) {
			out, _ := in.run(t, 0, "", "explain", "uid=42", "--json", "--aggregator", addr)
			var answer struct{ Rules []struct{ Count int } }
			if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Rules) != 1 {
				t.Fatalf("%v %s", err, out)
			}
			return answer.Rules[0].Count
		}
		soon(t, "four are counted", func() bool { return count() >= 4 })
		if n := count(); n != 4 {
			t.Errorf("%d are counted, want the good one, the two mended ones, and one more", n)
		}
		out, _ := in.run(t, 0, "", "audit")
		if !strings.Contains(out, "send 1 dead letter again") || !strings.Contains(out, "alice") || !strings.Contains(out, "2 events, "+in.prefix+".events/1@0\n") ||
			!strings.Contains(out, "2 events without their times, ") || strings.Count(out, "dead letter") != 3 {
			t.Errorf("the audit:\n%s", out)
		}
	})
}

// sender is the tool against an aggregator that answers so.
func sender(t *testing.T, stdin string, serve http.HandlerFunc, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	srv := httptest.NewServer(serve)
	defer srv.Close()
	var out, errs bytes.Buffer
	status = cli.Main(testrun.Context(t), append([]string{"dead-letters", "--send", "-", "--aggregator", srv.URL}, args...), strings.NewReader(stdin), &out, &errs, testrun.NoEnv)
	return status, out.String(), errs.String()
}

// takesAll answers that one event of each line was sent, but that a line that says "bad" was not.
func takesAll(w http.ResponseWriter, body []byte) {
	var list []string
	for line := range bytes.Lines(body) {
		if bytes.Contains(line, []byte("bad")) {
			list = append(list, `{"refused":"it is bad"}`)
			continue
		}
		list = append(list, `{"sent":1}`)
	}
	fmt.Fprintf(w, `{"letters":[%s]}`, strings.Join(list, ","))
}

func letterOf(offset int, partition int, more string) string {
	return fmt.Sprintf(`{"topic":"shop.events","partition":%d,"offset":%d,"value":"{}%s"}`+"\n", partition, offset, more)
}

// A file is sent in requests that an aggregator takes: of few letters, of few bytes, or of one letter that is long, and about
// few partitions. Lines keep their numbers, and a record that is there twice is sent once.
func TestAFileIsSentInRequestsThatAreTaken(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for i := range 2500 {
		file.WriteString(letterOf(i, 0, ""))
	}
	file.WriteString("\n" + letterOf(7, 0, "") + "no letter\n") // lines 2502, which is line 8 again, and 2503
	for i := range 3 {
		file.WriteString(letterOf(5000+i, 0, strings.Repeat("x", 200<<10)))
	}
	file.WriteString(letterOf(6000, 0, strings.Repeat("x", 15<<20)))
	for i := range 250 {
		file.WriteString(letterOf(i, i+1, "bad"))
	}
	var letters []int
	status, out, errs := sender(t, file.String(), func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Query().Get("now") != "true" || r.URL.Query().Get("by") != "alice" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v %s", err, r.URL)
		}
		n := bytes.Count(body, []byte("\n"))
		if letters = append(letters, n); n > 1 && len(body) > 300<<10 {
			t.Errorf("a request of %d bytes", len(body))
		}
		takesAll(w, body)
	}, "--now", "--by", "alice")
	if want := "[1000 1000 501 1 1 1 100 100 50]"; fmt.Sprint(letters) != want {
		t.Errorf("requests of %v letters, want %s", letters, want)
	}
	if status != 1 || !strings.HasPrefix(out, "2504 events of 2504 records sent, 251 lines refused, 1 repeat skipped") ||
		!strings.Contains(errs, "line 2502 repeats the record of line 8: skipped") || !strings.Contains(errs, "-:2503: no object as --json writes it") ||
		!strings.Contains(errs, "-:2508: it is bad") || !strings.Contains(errs, "-:2757: it is bad") {
		t.Errorf("%d %s%.2000s", status, out, errs)
	}
}

// Who is told to wait waits; other answers end it, and say what is not sent.
func TestWhatAnAggregatorAnswersToLetters(t *testing.T) {
	t.Parallel()
	one := letterOf(1, 0, "")
	var busy atomic.Int32
	status, out, errs := sender(t, one, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n := busy.Add(1); n <= 2 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[n-1])
			return
		}
		takesAll(w, body)
	})
	if status != 0 || !strings.HasPrefix(out, "1 event of 1 record sent") || busy.Load() != 3 {
		t.Errorf("busy at first: %d %s%s", status, out, errs)
	}
	answers := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for want, serve := range map[string]http.HandlerFunc{
		"is of an older version, and cannot send dead letters: --direct sends": http.NotFound,
		"this needs the role admin, and vera has the role viewer":              answers(403, `{"detail":"this needs the role admin, and vera has the role viewer"}`),
		"a token in TALLYGATE_TOKEN or --token-file":                           answers(401, ""),
		"0 of 1 events were sent in time":                                      answers(504, `{"detail":"0 of 1 events were sent in time"}`),
		"the aggregator's response is about 2 letters, want 1":                 answers(200, `{"letters":[{"sent":1},{"sent":1}]}`),
		"read the aggregator's response":                                       answers(200, `<html>`),
		"the aggregator responds 500 Internal Server Error: oh":                answers(500, `oh`),
		"EOF (--direct sends straight to Kafka, without an aggregator)": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		status, out, errs := sender(t, one+letterOf(2, 0, strings.Repeat("x", 300<<10)), serve)
		if status != 1 || !strings.HasPrefix(out, "0 events of 0 records sent") || !strings.Contains(errs, "send lines 1 to 1 of -, and the lines after them: ") || !strings.Contains(errs, want) {
			t.Errorf("want %q: %d %s%s", want, status, out, errs)
		}
	}
}
