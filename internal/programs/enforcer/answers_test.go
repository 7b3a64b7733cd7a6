package enforcer

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// answersOf reads an answers file with the program.
func answersOf(t *testing.T, text string) (enforce.Answers, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "answers.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := parse([]string{"--redis", "r:1", "--listen", "127.0.0.1:0", "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0", "--answers", path},
		io.Discard, io.Discard, testrun.NoEnv)
	if err != nil {
		return enforce.Answers{}, err
	}
	if err := e.HTTP.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Metrics.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Redis.Close(); err != nil {
		t.Error(err)
	}
	return e.Config.Answers, nil
}

// The page's example is one that is read, and means what the page says.
func TestAnswersOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/enforce.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "### The decision server's answers")
	_, rest, fenced := strings.Cut(rest, "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !found || !fenced || !closed {
		t.Fatal("docs/enforce.md has no example of an answers file")
	}
	got, err := answersOf(t, example)
	want := enforce.Answers{
		Status: 429, Type: "https://shop.example/slow-down", Title: "Slow down", UnavailableStatus: 503,
		Messages: map[string]string{"": "A limit was exceeded. Try again in {seconds} s."},
		Rules: map[string]enforce.PublicRule{"search-combined": {
			Name: "searches", Messages: map[string]string{"": "Too many searches.", "de": "Zu viele Suchen."}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf(" got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestAnswersThatAreWrong(t *testing.T) {
	for text, says := range map[string]string{
		"":                           "empty",
		"status: 200":                "from 400 to 499",
		"unavailable-status: 200":    "from 400 to 599",
		"statsu: 429":                "statsu",
		"rules: {a: searches}":       "answers.yaml",
		"status: 429\n---\ntitle: a": "first document",
		"rate-limit: maybe":          "answers.yaml",
	} {
		if a, err := answersOf(t, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, %v, want an error that says %q", text, a, err, says)
		}
	}
	if a, err := answersOf(t, "rate-limit: false\nx-rate-limit: true\n"); err != nil || !a.NoRateLimit || !a.XRateLimit {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := readAnswers(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is read")
	}
}
