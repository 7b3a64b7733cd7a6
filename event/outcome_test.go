package event

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
)

// The table is for programs in other languages, too: they read the same file.
func TestStatusOutcome(t *testing.T) {
	text, err := os.ReadFile("../testdata/outcomes.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		HTTP map[string]string `json:"http"`
	}
	if err := json.Unmarshal(text, &table); err != nil || len(table.HTTP) < 40 {
		t.Fatalf("%d statuses, %v", len(table.HTTP), err)
	}
	for text, want := range table.HTTP {
		status, err := strconv.Atoi(text)
		if got := StatusOutcome(status); err != nil || got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
