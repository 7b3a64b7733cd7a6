package topics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"
)

// partitions decides the number of partitions: that of most of the topics which must have the same
// number, whatever the setting says.
func (e *ensurer) partitions(have map[string]found) (n int32, advice []string) {
	together := []string{e.names.Events, e.names.Table, e.names.Loop, e.names.Verdicts}
	with, of := map[int32]int{}, ""
	for _, name := range together {
		if t, ok := have[name]; ok {
			with[t.partitions]++
		}
	}
	for _, name := range together {
		if t, ok := have[name]; ok && with[t.partitions] > with[n] {
			n, of = t.partitions, name
		}
	}
	if n == 0 {
		return cmp.Or(e.cfg.Partitions, defaultPartitions), nil
	}
	if e.cfg.Partitions != 0 && n != e.cfg.Partitions {
		advice = append(advice, fmt.Sprintf("%s has %d partitions, and that cannot be changed to the %d of the settings; %s",
			of, n, e.cfg.Partitions, "to "+Migration(e.cfg.Prefix, e.cfg.Partitions)))
	}
	return n, advice
}

// checkPartitions finds counts that differ: events would not reach the states of their keys.
func (e *ensurer) checkPartitions(specs []spec, have map[string]found) (faults []Fault) {
	fault := func(s spec, fix, format string, args ...any) {
		faults = append(faults, Fault{Topic: s.name, Must: true, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	for _, s := range specs {
		t, ok := have[s.name]
		switch {
		case !ok || t.partitions == s.partitions:
		case s.name == e.names.Rules:
			fault(s, "delete it, and publish the rules again",
				"%s has %d partitions and must have 1, since versions are its order", s.name, t.partitions)
		case s.exactly:
			fault(s, Migration(e.cfg.Prefix, max(t.partitions, s.partitions)),
				"%s has %d partitions, others have %d: keys would be apart from their states", s.name, t.partitions, s.partitions)
		case t.partitions < s.partitions:
			fault(s, fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d", e.bootstrap(), s.name, s.partitions),
				"%s has %d partitions, at least %d are needed", s.name, t.partitions, s.partitions)
		}
	}
	return faults
}

// Migration describes how to change the number of partitions.
func Migration(prefix string, partitions int32) string {
	next := prefix + "2"
	return fmt.Sprintf("migrate to %d partitions: "+
		"1. start aggregators with the prefix %s and %d partitions, beside the old ones; "+
		"2. let producers emit to %s.events, and publishers and enforcers follow %s.verdicts; "+
		"3. keep the old aggregators for the longest window and block, since counts start empty under the new prefix; "+
		"4. stop them and delete the topics of %s", partitions, next, partitions, next, next, prefix)
}

// checkSettings compares the settings of existing topics with those that are required and
// recommended. It also returns them by topic.
func (e *ensurer) checkSettings(specs []spec, have map[string]found) (faults []Fault, all map[string]map[string]string, err error) {
	var names []string
	for _, s := range specs {
		if _, ok := have[s.name]; ok {
			names = append(names, s.name)
		}
	}
	if len(names) == 0 {
		return nil, nil, nil
	}
	results, err := settingsOf(e.client, names)
	if err != nil {
		return nil, nil, err
	}
	all = make(map[string]map[string]string)
	for _, r := range results {
		i := slices.IndexFunc(specs, func(s spec) bool { return s.name == r.Name })
		if i < 0 {
			continue
		}
		if r.ErrorCode != 0 {
			faults = append(faults, Fault{Topic: r.Name, Text: fmt.Sprintf("%s: its settings cannot be checked: %v %s (DescribeConfigs on the topic must be allowed)",
				r.Name, sarama.KError(r.ErrorCode), r.ErrorMsg)})
			continue
		}
		all[r.Name] = make(map[string]string)
		for _, c := range r.Configs {
			all[r.Name][c.Name] = c.Value
		}
		faults = append(faults, e.compare(specs[i], have[r.Name], all[r.Name])...)
	}
	return faults, all, nil
}

func (e *ensurer) compare(s spec, t found, is map[string]string) (faults []Fault) {
	t.settings = is
	for _, c := range s.settings {
		have, ok := is[c.key]
		if !ok || c.fits == nil || c.fits(have, t) {
			continue
		}
		value := c.value
		if c.key == "min.insync.replicas" { // of the existing topic, not of a new one
			value = fmt.Sprint(wantInSync(t.replication))
		}
		fix := e.alterCommand(s.name, c.key, value)
		if s.name == e.names.Rules && (c.key == "cleanup.policy" || strings.HasPrefix(c.key, "retention.")) {
			fix = e.keepAllCommand(s.name)
		}
		faults = append(faults, Fault{
			Topic: s.name, Must: c.must,
			Text: fmt.Sprintf("%s: %s is %s: %s", s.name, c.key, have, c.why),
			Fix:  fix,
		})
	}
	return faults
}

func (e *ensurer) alterCommand(topic, key, value string) string {
	return AlterCommand(e.addrs, topic, key, value)
}

// keepAllCommand is the command that makes a topic keep all its records. It is one change: between two of them the
// records could be deleted.
func (e *ensurer) keepAllCommand(topic string) string {
	return e.alterCommand(topic, "retention.ms=-1,retention.bytes=-1,cleanup.policy", "delete")
}

// AlterCommand is the command that changes a setting of a topic.
func AlterCommand(addrs []string, topic, key, value string) string {
	if strings.Contains(value, ",") {
		value = "[" + value + "]"
	}
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config '%s=%s'",
		strings.Join(addrs, ","), topic, key, value)
}

func (e *ensurer) createCommand(s spec) string {
	settings := make(map[string]string)
	for _, c := range s.settings {
		settings[c.key] = c.value
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d --replication-factor %d",
		e.bootstrap(), s.name, s.partitions, e.replication())
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, " --config '%s=%s'", k, settings[k])
	}
	return b.String()
}

func (e *ensurer) bootstrap() string { return strings.Join(e.addrs, ",") }
