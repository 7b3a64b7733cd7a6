package aggregate

import (
	"strconv"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/rules"
)

// RuleFileRefused counts an attempt to use a rule file that failed because of the file, before Reload
// could be asked.
func (a *answers) RuleFileRefused() { a.metrics.rulesFailed.Inc() }

// compareRetention warns if verdicts of a new set may be deleted before they end.
func (b *rulebook) compareRetention(set *rules.Set) {
	found, needed := b.agg.found.Load(), set.LongestVerdict().Duration()
	if found == nil || found.VerdictRetention == 0 || needed <= found.VerdictRetention {
		return
	}
	topic := b.agg.names.Verdicts
	b.log.Warn("verdicts are deleted before they end by these rules, and blocks would be lost when the blocklist is rebuilt", "topic", topic,
		"retention_seconds", found.VerdictRetention.Seconds(), "needed_seconds", needed.Seconds(),
		"advice", topics.AlterCommand(b.agg.cfg.Brokers, topic, "retention.ms", strconv.FormatInt(needed.Milliseconds(), 10)))
}
