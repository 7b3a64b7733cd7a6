package rules

import (
	"os"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// TestSentences holds each sentence of the rule language that states a meaning of events, counts,
// windows and verdicts against a short story. testdata/sentences.txt has them, one after the other: a line
// `== the sentence`, then a scenario (see scenario) whose start is 2026-11-21T10:00:00Z. After a change
// that is meant to change them: go test -run TestSentences -rewrite
func TestSentences(t *testing.T) {
	const file, start = "testdata/sentences.txt", "start 2026-11-21T10:00:00Z\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split("\n"+string(text), "\n== ")
	out := strings.TrimPrefix(parts[0], "\n")
	line := strings.Count(parts[0], "\n")
	seen := map[string]bool{}
	for _, part := range parts[1:] {
		sentence, story, _ := strings.Cut(part, "\n")
		if seen[sentence] {
			t.Errorf("told twice: %s", sentence)
		}
		seen[sentence] = true
		if out != "" {
			out += "\n"
		}
		out += "== " + sentence + "\n"
		t.Run(strings.ReplaceAll(sentence, "/", "⁄"), func(t *testing.T) {
			out += strings.TrimPrefix(playScenario(t, file, line, start+strings.TrimRight(story, "\n")+"\n"), start)
		})
		line += 1 + strings.Count(part, "\n")
	}
	if !t.Failed() {
		testrun.Golden(t, file, out)
	}
}
