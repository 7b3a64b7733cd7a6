package health

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/api"
)

// away judges a server that does not answer.
func away[T any](o *Observations, server string, r *Reading[T]) []Fault {
	if r.Err == nil || refusal(r.Err) {
		return nil
	}
	plain := server + " does not answer"
	f := Fault{Level: Bad, Plain: plain, Text: plain + ": " + short(r.Err.Error())}
	if text := r.Err.Error(); strings.HasPrefix(text, "MOVED") || strings.Contains(text, "cluster support disabled") {
		f.Advice = "if it is a Cluster, use --redis-cluster, or list all nodes in --redis"
	}
	return []Fault{f}
}

// refuses judges a server that does not let in who looks. Others may have rights that the console has not; the doctor
// has theirs.
func refuses[T any](o *Observations, server string, r *Reading[T]) []Fault {
	if r.Err == nil || !refusal(r.Err) {
		return nil
	}
	f := Fault{Level: Warn, Plain: server + " refuses " + o.who()}
	if f.Text = f.Plain + ": " + short(r.Err.Error()); o.Doctor != nil {
		f.Level = Bad
	}
	return []Fault{f}
}

// refusal reports whether a server answered, and does not let in who asks.
func refusal(err error) bool {
	if s := refusedWith(err); s == http.StatusUnauthorized || s == http.StatusForbidden {
		return true
	}
	text := strings.ToLower(err.Error())
	for _, sign := range []string{"noperm", "noauth", "wrongpass", "authorization failed", "authentication", "sasl"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// refusedWith is the status of a refusal among errs; 0 if there is none.
func refusedWith(err error) int {
	if refused, ok := errors.AsType[*api.Refusal](err); ok {
		return refused.Status
	}
	return 0
}

// troubled judges what an aggregator has with a server: the first that has some is told.
func troubled(o *Observations, server string, of func(*api.AggregatorStatus) *api.Trouble) []Fault {
	for _, m := range o.aggregators() {
		if t := of(m.Aggregator); t != nil {
			return []Fault{{Level: Bad, Plain: server + " refuses an aggregator",
				Text: fmt.Sprintf("%s refuses the aggregator %s (%s): %s", server, m.Instance, t.Reason, short(t.Error))}}
		}
	}
	return nil
}

// hidden judges a topic that aggregators count, and who looks may not see.
func hidden(o *Observations) []Fault {
	if t := &o.Kafka.Value.Events; t.Missing && counted(o) {
		return []Fault{{Level: Warn, Text: "Kafka does not show the topic " + t.Name + " to " + o.who() + ", and aggregators count it"}}
	}
	return nil
}

func noTopic(o *Observations) []Fault {
	if t := &o.Kafka.Value.Events; t.Missing && !counted(o) {
		return []Fault{{Level: Bad, Text: "the topic " + t.Name + " does not exist, or " + o.who() + " may not see it"}}
	}
	return nil
}

// counted reports whether an aggregator counts a partition: then there is a topic.
func counted(o *Observations) bool {
	return slices.ContainsFunc(o.aggregators(), func(m *api.Status) bool { return len(m.Aggregator.Partitions) > 0 })
}

// topics has a fault for each topic with such partitions.
func topics(o *Observations, level Level, of func(*Topic) []int32, format, command string) (all []Fault) {
	k := &o.Kafka.Value
	for _, t := range append([]Topic{k.Events, k.Verdicts}, k.More...) {
		if list := of(&t); len(list) > 0 {
			f := Fault{Level: level, Text: fmt.Sprintf(format, partitions(list), t.Name)}
			if o.Doctor != nil {
				f.Advice = fmt.Sprintf(command, o.Doctor.Bootstrap, t.Name)
			}
			all = append(all, f)
		}
	}
	return all
}

func leaderless(o *Observations) []Fault {
	return topics(o, Bad, func(t *Topic) []int32 { return t.Leaderless }, "no broker leads %s of %s: it can be neither written nor read",
		"start the brokers that hold it: kafka-topics.sh --bootstrap-server %s --describe --topic %s --unavailable-partitions")
}

func thin(o *Observations) []Fault {
	return topics(o, Warn, func(t *Topic) []int32 { return t.Thin }, "%s of %s: a replica is out of sync, and one more failure may stop it",
		"start the broker that is away, or wait until it has caught up: "+
			"kafka-topics.sh --bootstrap-server %s --describe --topic %s --under-replicated-partitions")
}
