package aggregate

import (
	"testing"

	"github.com/tallygate/tallygate/event"
)

// Events that contradict what the rules declare count, and are in a metric.
func TestWhatContradictsTheVocabularyIsInAMetric(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, `
  apis: [buy, "order.*"]
  attrs: {plan: [free, pro], amount: number}
  rules: [{name: all, match: {api: "*"}, limit: 9, per: 1h, then: {block: 1h}}]`))
		r.emitTo(r.names.Events, event.Partition([]byte("u1"), rigPartitions), `{"uid":"u1","api":"buy","attrs":{"plan":"pro","amount":3,"empty":""}}`,
			`{"uid":"u1","api":"sell","attrs":{"plan":"gold","amount":"3","vip":true}}`)
		eventually(t, "both count", func() bool { return r.count("u1", "all", m) == 2*event.One })
		for sentence, tt := range map[string][]string{
			"An API that is not declared":       {"api", "sell"},
			"an attribute that is not declared": {"attr", "vip"},
			"an attribute of another type":      {"type", "amount"},
			"a value that is not in the list":   {"value", "plan"},
			"tallygate_vocabulary_mismatches_total counts what is wrong, and each new name is logged once": {"api", "sell"},
		} {
			eventually(t, sentence, func() bool { return m.labelled(t, "tallygate_vocabulary_mismatches_total", tt...) == 1 })
		}
		if n := m.labelled(t, "tallygate_vocabulary_mismatches_total", "attr", "empty"); n != 0 {
			t.Errorf("an empty attribute is absent, and contradicts nothing: %v", n)
		}
	})
}
