package didyoumean_test

import (
	"testing"

	"github.com/tallygate/tallygate/rules/didyoumean"
)

func TestDidYouMean(t *testing.T) {
	all := []string{"--aggregator", "--kafka", "--max-lag", "--redis"}
	for word, want := range map[string]string{
		"--agregator": `; did you mean "--aggregator"?`, "--max_lag": `; did you mean "--max-lag"?`, "--rdeis": `; did you mean "--redis"?`, "--aggr": `; did you mean "--aggregator"?`,
		"--listen": "", "--x": "", "": "",
	} {
		if got := didyoumean.Hint(word, all); got != want {
			t.Errorf("%s: %s", word, got)
		}
	}
}
