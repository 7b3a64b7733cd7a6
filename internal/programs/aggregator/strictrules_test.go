package aggregator

import (
	"context"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/publish"
	"github.com/tallygate/tallygate/rules"
)

// puts notes what is put into Redis.
type puts struct {
	publish.Shards
	publish.Ends
	texts chan string
}

func (p *puts) PutRules(_ context.Context, _ uint64, text []byte) error {
	p.texts <- string(text)
	return nil
}

func (p *puts) HasRules(context.Context, uint64) (bool, error) { return true, nil }

// TestWhatServicesNeedOfTheRules: those that decide before an action, in Redis or in the process. Of
// others they need to know that there are none.
func TestWhatServicesNeedOfTheRules(t *testing.T) {
	p := &puts{texts: make(chan string, 1)}
	pub, err := publish.New(publish.Config{Redis: p, Ends: p, Kafka: []string{"127.0.0.1:1"}, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, pub.Run)
	s := strictLimits{Publisher: pub, metrics: newStrictMetrics(pub)}
	for rule, want := range map[string]string{
		"{name: a, match: {api: x}, limit: 1, per: 1h, strict: true}":               "record",
		"{name: a, match: {api: x}, limit: 1, per: 1h, scope: instance}":            "record",
		"{name: a, match: {api: x}, limit: 1, per: 1h, then: {block: 1m}}":          "",
		"{name: a, match: {api: x}, limit: 1, per: 1h, strict: true, mode: shadow}": "",
	} {
		set, err := rules.Compile("rules.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec: {rules: ["+rule+"]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		s.use(1, []byte("record"), set)
		if got := <-p.texts; got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}
