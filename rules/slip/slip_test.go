package slip_test

import (
	"testing"

	"github.com/tallygate/tallygate/rules/slip"
)

func TestDidYouMean(t *testing.T) {
	all := []string{"--aggregator", "--kafka", "--max-lag", "--redis"}
	for word, want := range map[string]string{
		"--agregator": `; did you mean "--aggregator"?`, "--max_lag": `; did you mean "--max-lag"?`, "--rdeis": `; did you mean "--redis"?`, "--aggr": `; did you mean "--aggregator"?`,
		"--listen": "", "--x": "", "": "",
	} {
		if got := slip.DidYouMean(word, all); got != want {
			t.Errorf("%s: %s", word, got)
		}
	}
}
