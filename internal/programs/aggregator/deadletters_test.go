package aggregator

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

const deadLetters = "/v1/dead-letters"

// fixed is a dead letter of the record at an offset, with that value.
func fixed(offset int, value string) string {
	return fmt.Sprintf(`{"at":"2026-11-21T10:00:00Z","reason":"no-api","detail":"x","topic":"shop.events","partition":1,"offset":%d,"value":%q}`, offset, value)
}

// counts returns a uid's count.
func (p *program) counts(uid string) int {
	status, said := p.ask("", http.MethodGet, "/v1/explain?uid="+uid, "")
	var answer struct{ Rules []struct{ Count int } }
	if status != http.StatusOK || json.Unmarshal([]byte(said), &answer) != nil || len(answer.Rules) != 1 {
		return -1
	}
	return answer.Rules[0].Count
}

var auditID = regexp.MustCompile(`"(id|at)":"[^"]+"`)

// What is sent counts, and counts once: also when it is sent again, by another instance, with its
// own time or without.
func TestDeadLettersAreSentAndCountOnce(t *testing.T) {
	t.Parallel()
	servers.EachKafka(t, func(t *testing.T, brokers []string) {
		group := servers.Name(t)
		two := []*program{began(t, brokers, group, nil), began(t, brokers, group, nil)}
		letters := []string{
			fixed(7, `[{"api":"a","uid":"1"},{"api":"a","uid":"1"},{"api":"a","uid":"2","id":"x"}]`),
			fixed(8, `{"uid":"1"}`),
			fixed(7, `{"api":"a","uid":"1"}`),
			`{"value":"{\"api\":\"a\",\"uid\":\"3\"}"}`,
			fixed(9, `{"api":"a","uid":"1"}`),
		}
		lines, array := strings.Join(letters, "\n\n")+"\n", "["+strings.Join(letters, ",")+"]"
		want := `{"id":"","records":3,"events":5,"refused":1,"repeats":1,"letters":[{"sent":3},{"refused":"still malformed: `
		for i, body := range []string{lines, array, lines} {
			query := []string{"?by=alice", "?by=alice&on_behalf_of=bob", "?now=true"}[i]
			status, said := two[i%2].ask("", http.MethodPost, deadLetters+query, body)
			got := auditID.ReplaceAllString(said, `"$1":""`)
			if status != http.StatusOK || !strings.HasPrefix(got, want) || !strings.HasSuffix(strings.TrimSpace(got), `},{"repeat":1},{"sent":1},{"sent":1}]}`) {
				t.Fatalf("%d %s", status, said)
			}
		}
		// One more behind them: when it is counted, so are they.
		for uid := range 3 {
			if status, said := two[0].ask("", http.MethodPost, deadLetters, fixed(100+uid, fmt.Sprintf(`{"api":"a","uid":"%d"}`, uid+1))); status != http.StatusOK {
				t.Fatalf("%d %s", status, said)
			}
		}
		// That of no record has no id, and counts each time.
		for uid, want := range map[string]int{"1": 4, "2": 2, "3": 4} {
			last := -1
			testrun.Eventually(t, fmt.Sprintf("uid %s has counted %d", uid, want), func() bool { last = two[0].counts(uid); return last >= want })
			if last != want {
				t.Errorf("uid %s has counted %d, want %d", uid, last, want)
			}
		}
		all := auditID.ReplaceAllString(audited(t, brokers, group), `"$1":""`)
		of := `"letters":3,"events":5,%s"records":[{"topic":"shop.events","partition":1,"letters":2,"offset":7,"last_offset":9}],"id":""}`
		for _, line := range []string{
			`{"type":"dead-letters","at":"","by":"alice",` + fmt.Sprintf(of, ""),
			`{"type":"dead-letters","at":"","by":"alice","on_behalf_of":"bob",` + fmt.Sprintf(of, ""),
			`{"type":"dead-letters","at":"","by":"",` + fmt.Sprintf(of, `"now":true,`),
		} {
			if strings.Count(all, line+"\n") != 1 {
				t.Errorf("the audit lacks %s:\n%s", line, all)
			}
		}
	})
}

// Only an admin sends dead letters again, and no page in a browser.
func TestWhoMaySendDeadLetters(t *testing.T) {
	brokers := servers.EmbeddedKafka(t)
	p := began(t, brokers, "who", nil, "--tokens", staff(t))
	letter := fixed(1, `{"api":"a","uid":"1"}`)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, c := range []struct {
		token  string
		change func(*http.Request)
		want   int
		says   string
	}{
		{"", func(*http.Request) {}, 401, "credential"},
		{"no credential", func(*http.Request) {}, 401, "credential"},
		{"viewer", func(*http.Request) {}, 403, "needs the role admin, and the-viewer has the role viewer"},
		{"operator", func(*http.Request) {}, 403, "needs the role admin, and the-operator has the role operator"},
		{"admin", header("Origin", "http://evil.example"), 403, "web pages"},
		{"admin", header("Sec-Fetch-Site", "cross-site"), 403, "web pages"},
		{"admin", header("Content-Type", "text/plain"), 415, "application/json"},
		{"admin", header("Content-Type", "application/x-ndjson"), 415, "application/json"},
	} {
		status, said := p.ask(c.token, http.MethodPost, deadLetters, letter, c.change)
		if status != c.want || !strings.Contains(said, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.token, status, said, c.want, c.says)
		}
	}
	if all := resent(t, brokers, "who"); all != "" {
		t.Errorf("the audit of refused requests:\n%s", all)
	}
	if status, said := p.ask("admin", http.MethodPost, deadLetters+"?by=alice", letter); status != http.StatusOK {
		t.Errorf("an admin: %d %s", status, said)
	}
	if all := resent(t, brokers, "who"); strings.Count(all, "\n") != 1 || !strings.Contains(all, `"by":"the-admin","on_behalf_of":"alice","letters":1,`) {
		t.Errorf("the audit:\n%s", all)
	}
}

// resent is the audit without the entry of the rules that the program published when it began.
func resent(t *testing.T, brokers []string, prefix string) (lines string) {
	t.Helper()
	for line := range strings.Lines(audited(t, brokers, prefix)) {
		if !strings.Contains(line, `"type":"rules"`) {
			lines += line
		}
	}
	return lines
}

// A request that is none is refused, and what is no letter is told beside those that are sent.
// Nothing is in the audit that was not sent.
func TestLettersThatAreNone(t *testing.T) {
	t.Parallel()
	brokers := servers.EmbeddedKafka(t)
	p := began(t, brokers, "none", nil)
	good := fixed(1, `{"api":"a","uid":"1"}`)
	far := make([]string, 101)
	for i := range far {
		far[i] = strings.Replace(good, `"partition":1`, fmt.Sprintf(`"partition":%d`, i), 1)
	}
	for _, c := range []struct {
		query, body string
		want        int
		says        string
	}{
		{"", "", 400, "which letters?"},
		{"", " \n\n ", 400, "which letters?"},
		{"", "[]", 400, "which letters?"},
		{"", "[" + good, 400, "not an array of letters"},
		{"", "[" + good + "] 17", 400, "there is more after the array"},
		{"", "[" + good + ",]", 400, "not an array of letters"},
		{"", strings.Repeat("1\n", 1001), 400, "more than 1000 letters"},
		{"", "[" + strings.Repeat("1,", 1000) + "1]", 400, "more than 1000 letters"},
		{"", strings.Join(far, "\n"), 400, "records of 101 partitions"},
		{"", strings.Repeat(" ", 17<<20), 413, "more than 16842752 bytes"},
		{"?now=1", good, 400, "true or false"},
		{"?now=true&now=true", good, 400, "given 2 times"},
		{"?who=me", good, 400, "unknown parameter who"},
		{"?by=" + strings.Repeat("b", 257), good, 400, "by has 257 bytes"},
		{"", "no JSON\n{}", 200, `{"refused":"no object as --json writes it: invalid character 'o' in literal null (expecting 'u')"},{"refused":"it has no value"}`},
		{"", "[17,null]", 200, `{"records":0,"events":0,"refused":2,"repeats":0,"letters":[{"refused":`},
		{"", `{"topic":"a b","value":"{}"}`, 200, "not a valid name of a topic"},
		{"", strings.Repeat("1\n", 1000), 200, `"refused":1000,`},
	} {
		status, said := p.ask("", http.MethodPost, deadLetters+c.query, c.body)
		if status != c.want || !strings.Contains(said, c.says) {
			t.Errorf("%s %.100s: %d %.300s, want %d and %q", c.query, c.body, status, said, c.want, c.says)
		}
	}
	if all := resent(t, brokers, "none"); all != "" {
		t.Errorf("the audit of what was not sent:\n%s", all)
	}
	publisher := &resender{Program: &Program{PublishOnly: true}}
	publisher.tells(t, http.StatusNotImplemented, "--publish-only")
}

// tells wants that answer to any request.
func (s *resender) tells(t *testing.T, status int, says string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.serve(w, httptest.NewRequest(http.MethodPost, deadLetters, nil))
	if w.Code != status || !strings.Contains(w.Body.String(), says) {
		t.Errorf("%d %s, want %d and %q", w.Code, w.Body, status, says)
	}
}

// While the letters of one request are read and sent, another one is told to come again. One whose
// letters don't come is given up.
func TestDeadLettersAreSentOneRequestAtATime(t *testing.T) {
	t.Parallel()
	p := began(t, servers.EmbeddedKafka(t), "one", nil)
	// held returns when the letters of its request are being read: the server says so with 100
	// Continue, and nothing of the body is sent before.
	held := func() (rest io.WriteCloser, answer chan string) {
		reader, writer := io.Pipe()
		answer = make(chan string, 1)
		go func() {
			status, said := p.ask("", http.MethodPost, deadLetters, "", func(r *http.Request) {
				r.Body, r.ContentLength = reader, -1
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Expect", "100-continue")
			})
			answer <- fmt.Sprint(status, said)
		}()
		if _, err := io.WriteString(writer, fixed(1, `{"api":"a","uid":"1"}`)); err != nil {
			t.Fatal(err, <-answer)
		}
		return writer, answer
	}
	other := func() (status int, retry string) {
		// It is refused for its query, unless it is told to wait.
		req, err := http.NewRequest(http.MethodPost, p.url+deadLetters+"?who=me", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := p.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	waits := func() {
		t.Helper()
		if status, retry := other(); status != http.StatusTooManyRequests || retry != "1" {
			t.Errorf("a second request is answered %d, Retry-After %q", status, retry)
		}
	}
	rest, answer := held()
	waits()
	_ = rest.Close()
	if got := <-answer; !strings.HasPrefix(got, "200") || !strings.Contains(got, `"letters":[{"sent":1}]`) {
		t.Errorf("the first: %s", got)
	}
	rest, answer = held()
	defer rest.Close()
	waits()
	testrun.Eventually(t, "it is given up", func() bool { status, _ := other(); return status == http.StatusBadRequest })
	if got := <-answer; !strings.HasPrefix(got, "408") || !strings.Contains(got, "did not arrive within 10s") {
		t.Errorf("one that does not come: %s", got)
	}
}

// set changes a topic's setting.
func set(t *testing.T, brokers []string, topic, name, value string) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	err = admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{name: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false)
	if err != nil {
		t.Fatal(err)
	}
}

// What the audit does not take is not sent; what the event topic does not take is told, and how
// much it has taken.
func TestDeadLettersThatKafkaRefuses(t *testing.T) {
	brokers, group := servers.Kafka(t), servers.Name(t)
	names := topics.NamesOf(group)
	p := began(t, brokers, group, nil)
	set(t, brokers, names.Audit, "max.message.bytes", "120")
	testrun.Eventually(t, "the audit takes nothing", func() bool {
		status, said := p.ask("", http.MethodPost, deadLetters, fixed(1, `{"api":"a","uid":"1"}`))
		return status == http.StatusGatewayTimeout && strings.Contains(said, "it is not in the audit yet, and nothing was sent: ") && strings.Contains(said, "raise the topic's max.message.bytes")
	})
	set(t, brokers, names.Audit, "max.message.bytes", "1048576")
	set(t, brokers, names.Events, "max.message.bytes", "300")
	large := fixed(3, fmt.Sprintf(`{"api":"a","uid":"4","attrs":{"x":"%x"}}`, sha256.Sum256(nil))) + "\n" + fixed(4, fmt.Sprintf(`{"api":"a","uid":"4","attrs":{"x":"%x%x","y":"%x"}}`, sha512.Sum512([]byte("x")), sha256.Sum256([]byte("y")), sha512.Sum512([]byte("z"))))
	testrun.Eventually(t, "the event topic takes short events only", func() bool {
		status, said := p.ask("", http.MethodPost, deadLetters, large)
		return status == http.StatusBadGateway && strings.Contains(said, "1 of 2 events were sent, 1 are refused, and would be refused again: ") && strings.Contains(said, "Message Size Too Large")
	})
}

// A stop waits for what Kafka has not taken yet, but not for longer than it may; and says that it
// is not sent.
func TestAStopWhileDeadLettersAreSent(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	s := newResender(ctx, &Program{Kafka: &kafkaconn.Kafka{Brokers: []string{"127.0.0.1:1"}}, Log: slog.New(slog.DiscardHandler)}, nil)
	p, err := planResend([][]byte{[]byte(fixed(1, `{"api":"a","uid":"1"}`))}, aggregate.Resent{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	stop()
	status, err := s.send(t.Context(), p)
	if took := time.Since(began); status != http.StatusGatewayTimeout || err == nil || !strings.Contains(err.Error(), "0 of 1 events were sent in time") || !strings.Contains(err.Error(), "refused") || took < stopWithin {
		t.Errorf("%d %v after %v", status, err, took)
	}
	s.tells(t, http.StatusServiceUnavailable, "this instance is stopping: nothing was done")
}
