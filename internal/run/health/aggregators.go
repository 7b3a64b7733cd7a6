package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
)

// aggregators returns the members that report their counting; none while the group is unknown.
func (o *Observations) aggregators() (all []*api.Status) {
	if !o.Cluster.Known(o.Now) {
		return nil
	}
	for i := range o.Cluster.Value.Members {
		if m := &o.Cluster.Value.Members[i]; m.Aggregator != nil {
			all = append(all, m)
		}
	}
	return all
}

// noAnswer: no aggregator reports the group. One that refuses the question is there, and counts.
func noAnswer(o *Observations) []Fault {
	if s := refusedWith(o.Cluster.Err); o.Cluster.Err == nil || s != 0 && s < 500 {
		return nil
	}
	const plain = "no aggregator answers"
	return []Fault{{Level: Bad, Plain: plain, Text: plain + ": " + short(o.Cluster.Err.Error()),
		About: []Subject{{Name: "aggregators", What: plain + ": nobody counts, and no new verdicts come"}}}}
}

func noMember(o *Observations) []Fault {
	c := &o.Cluster.Value
	switch {
	case !o.Cluster.Known(o.Now) || len(c.Members) > 0:
		return nil
	case o.Doctor != nil && !o.Doctor.Started:
		return []Fault{{Level: Warn, Text: "no aggregator has run in the group " + o.Doctor.Prefix + " yet (" + o.Doctor.Lag + ")"}}
	case o.Doctor != nil:
		return []Fault{{Level: Bad, Text: "no aggregator is in the group " + o.Doctor.Prefix + ": nothing is counted (" + o.Doctor.Lag + ")"}}
	}
	return []Fault{{Level: Bad, Text: "no aggregator is in the group: nothing is counted"}}
}

func unowned(o *Observations) []Fault {
	c := &o.Cluster.Value
	if !o.Cluster.Known(o.Now) || len(c.Unowned) == 0 {
		return nil
	}
	f := Fault{Level: Bad}
	var list []int32
	var reasons []string
	for _, u := range c.Unowned {
		list = append(list, u.Partition)
		if !slices.Contains(reasons, u.Reason) {
			reasons = append(reasons, u.Reason)
		}
		f.About = append(f.About, Subject{Name: fmt.Sprintf("partition %d", u.Partition), What: "has no owner: " + u.Reason})
	}
	f.Text = "nobody counts " + partitions(list) + " (" + short(strings.Join(reasons, "; ")) + ")"
	if len(c.Missing) > 0 {
		f.Text += "; " + missed(c.Missing)
	}
	return []Fault{f}
}

// differs judges what must be the same for all members: a fault for each setting, the worst first. Of two members, the
// one without Redis is told.
func differs(o *Observations) (all []Fault) {
	for _, what := range []string{api.DiffersRedis, api.DiffersShards, api.DiffersBrokerTime} {
		text := ""
		for _, m := range o.aggregators() {
			for _, d := range m.Aggregator.Differs {
				if d.What == what && (text == "" || d.There == api.RedisNone) {
					text = d.Text(m.Instance)
				}
			}
		}
		if text != "" {
			all = append(all, Fault{Level: Bad, Text: text})
		}
	}
	return all
}

// inState judges partitions that are in a state.
func inState(o *Observations, state string, level Level, what string) []Fault {
	var list []int32
	for _, m := range o.aggregators() {
		for _, p := range m.Aggregator.Partitions {
			if p.State == state {
				list = append(list, p.Partition)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	return []Fault{{Level: level, Text: partitions(list) + what}}
}

func missing(o *Observations) []Fault {
	if c := &o.Cluster.Value; o.Cluster.Known(o.Now) && len(c.Missing) > 0 {
		return []Fault{{Level: Warn, Text: missed(c.Missing)}}
	}
	return nil
}

func missed(all []api.MissingMember) string {
	var parts []string
	for _, m := range all {
		parts = append(parts, m.Instance+" does not answer: "+short(m.Reason))
	}
	return strings.Join(parts, "; ")
}

func hasLeft(o *Observations) []Fault {
	if len(o.left) == 0 {
		return nil
	}
	return []Fault{{Level: Warn, Text: strings.Join(o.left, ", ") + " has left the group, and nobody came instead"}}
}

// late judges how far counting is behind: one fault, of the worst partition.
func late(o *Observations) []Fault {
	f := Fault{Level: OK}
	var worst api.PartitionStatus
	for _, m := range o.aggregators() {
		for _, p := range m.Aggregator.Partitions {
			level := Late.Level(Seconds(p.LagSeconds))
			if o.LateAfter > 0 {
				level = when(Seconds(p.LagSeconds) > o.LateAfter, Bad)
			}
			if level == OK {
				continue
			}
			if p.LagSeconds > worst.LagSeconds {
				worst = p
			}
			f.Level = f.Level.Worse(level)
			f.About = append(f.About, Subject{Name: fmt.Sprintf("partition %d", p.Partition),
				What: fmt.Sprintf("is %s and %d records behind, at %s", span(Seconds(p.LagSeconds)), p.Lag, m.Instance)})
		}
	}
	if f.Level == OK {
		return nil
	}
	f.Text = fmt.Sprintf("counting is %s behind in partition %d", span(Seconds(worst.LagSeconds)), worst.Partition)
	if o.Doctor != nil {
		f.Text = fmt.Sprintf("counting is more than %s behind in partition %d, by %d records", span(Seconds(worst.LagSeconds)),
			worst.Partition, worst.Lag)
	}
	if n := len(f.About) - 1; n > 0 {
		f.Text += fmt.Sprintf(", and %d more are late", n)
	}
	return []Fault{f}
}

// WorstLag is the greatest lag of a partition, in time.
func WorstLag(o *Observations) (lag time.Duration, partition int32) {
	for _, m := range o.aggregators() {
		for _, p := range m.Aggregator.Partitions {
			if d := Seconds(p.LagSeconds); d > lag {
				lag, partition = d, p.Partition
			}
		}
	}
	return lag, partition
}

func notReady(o *Observations) []Fault {
	if !o.Cluster.Known(o.Now) {
		return nil
	}
	for _, m := range o.Cluster.Value.Members {
		if !m.Ready {
			return []Fault{{Level: Warn, Text: m.Instance + " is not ready: " + short(m.Why)}}
		}
	}
	return nil
}

func rejected(o *Observations) (all []Fault) {
	for _, m := range o.aggregators() {
		if r := &m.Aggregator.Rules; !r.FileOK {
			all = append(all, Fault{Level: Bad, Text: fmt.Sprintf("the rule file of %s is rejected, and version %d applies on: %s",
				m.Instance, r.Version, short(r.FileError)),
				About: []Subject{{m.Instance, "keeps the rules that it has", short(r.FileError)}}})
		}
	}
	return all
}

func blown(o *Observations) []Fault {
	var all []string
	for _, m := range o.aggregators() {
		for _, rule := range m.Aggregator.Rules.Blown {
			if !slices.Contains(all, rule) {
				all = append(all, rule)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return []Fault{{Level: Bad, Text: "the fuse of " + Some(all) + " has blown: it blocks nobody any more"}}
}

func rulesDiffer(o *Observations) []Fault {
	by := map[string][]string{}
	for _, m := range o.aggregators() {
		name := fmt.Sprintf("version %d", m.Aggregator.Rules.Version)
		if o.Doctor != nil { // the group's members tell the hash only
			name = fmt.Sprintf("%.8s", cmp.Or(m.Aggregator.Rules.Name, "unknown"))
		}
		by[name] = append(by[name], m.Instance)
	}
	if len(by) < 2 {
		return nil
	}
	return []Fault{{Level: Warn, Text: "the aggregators count by different rules (" + list(by) +
		"): when a partition moves between them, it loses the counts of limits that its new owner does not have"}}
}

// list names the holders of each value, in the order of the values, so that a text stays the same between polls.
func list(by map[string][]string) string {
	var parts []string
	for _, value := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, value+": "+Some(by[value]))
	}
	return strings.Join(parts, "; ")
}

// certificates judges those of the aggregators, and of decision servers that tell everybody.
func certificates(o *Observations) (all []Fault) {
	if !o.Cluster.Known(o.Now) {
		return nil
	}
	var of []Certificates
	for _, m := range o.Cluster.Value.Members {
		of = append(of, Certificates{m.Instance, m.Metrics[CertificateMetric]})
	}
	for _, c := range append(of, o.Enforced.Value.Certificates...) {
		for _, s := range c.Expiry {
			left := time.Unix(int64(s.Value), 0).Sub(o.Now)
			what := "the certificate of --" + s.Labels["option"] + " of " + c.Program
			f := Fault{Level: Bad, About: []Subject{{Name: c.Program + ":" + s.Labels["option"]}}}
			switch {
			case s.Value == 0:
				f.Text = what + " cannot be read"
			case left <= 0:
				f.Text = what + " has ended"
			case left < CertificateDue:
				f.Level, f.Text = Warn, what+" ends in "+span(left)
			default:
				continue
			}
			all = append(all, f)
		}
	}
	return all
}

// memberClocks compares the aggregators' clocks with the console's. An answer may take some seconds.
func memberClocks(o *Observations) (all []Fault) {
	for _, m := range o.aggregators() {
		if skew := m.Now.Sub(o.Cluster.At); !m.Now.IsZero() && skew.Abs() >= Clock.Warn+2*ClockMargin {
			all = append(all, Fault{Level: Warn, Text: fmt.Sprintf("the clock of the aggregator %s differs from the console's by %s",
				m.Instance, span(skew.Abs())), About: []Subject{{Name: m.Instance}}})
		}
	}
	return all
}

func exemptionsEnd(o *Observations) []Fault {
	e := &o.Exemptions.Value
	if e.Ending == 0 || !e.Next.After(o.Now) {
		return nil
	}
	ends := "exemptions end"
	if e.Ending == 1 {
		ends = "exemption ends"
	}
	return []Fault{{Level: Warn, Text: fmt.Sprintf("%d %s within the hour, the next in %s", e.Ending, ends, span(e.Next.Sub(o.Now)))}}
}
