package topics

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// Fault is a topic's setting or state that is not as it should be.
type Fault struct {
	Topic string
	Must  bool   // Ensure refuses it; else it only advises
	Text  string // what is wrong, and its consequence
	Fix   string // the command that fixes it, or what to do; "" if unknown
}

func (f Fault) String() string {
	if f.Fix == "" {
		return f.Text
	}
	return f.Text + "; to fix it: " + f.Fix
}

func split(faults []Fault) (must []error, should []string) {
	for _, f := range faults {
		if f.Must {
			must = append(must, errors.New(f.String()))
		} else {
			should = append(should, f.String())
		}
	}
	return must, should
}

// Topic is an existing topic.
type Topic struct {
	ID          sarama.Uuid
	Partitions  int32
	Replication int16
	Behind      []int32           // partitions with a replica that is not in sync
	Leaderless  []int32           // partitions that can be neither written nor read
	Settings    map[string]string // nil if this client may not read them
}

// State is the result of Check.
type State struct {
	Names      Names
	Partitions int32            // that events, loop, table and verdicts have, or would get
	Topics     map[string]Topic // those that exist, by name
	Missing    []Fault          // those that Ensure would create, in the order of Names.All
	Faults     []Fault
}

// Check examines the topics as Ensure does, but creates and changes nothing. conf bounds how long
// it takes.
func Check(addrs []string, conf *sarama.Config, cfg Config) (*State, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e, err := newEnsurer(addrs, conf, cfg)
	if err != nil {
		return nil, err
	}
	defer e.close()
	have, err := e.describe()
	if err != nil {
		return nil, err
	}
	partitions, _ := e.partitions(have)
	specs := e.cfg.specs(partitions, e.replication())
	wrong, settings, err := e.checkSettings(specs, have)
	if err != nil {
		return nil, err
	}
	s := &State{
		Names: e.names, Partitions: partitions, Topics: make(map[string]Topic),
		Faults: append(e.checkPartitions(specs, have), wrong...),
	}
	for name, t := range have {
		s.Topics[name] = Topic{t.id, t.partitions, t.replication, t.behind, t.leaderless, settings[name]}
	}
	for _, name := range e.names.All() {
		if _, ok := have[name]; ok {
			continue
		}
		i := slices.IndexFunc(specs, func(s spec) bool { return s.name == name })
		s.Missing = append(s.Missing, Fault{Topic: name, Text: fmt.Sprintf("there is no topic %s", name), Fix: e.createCommand(specs[i])})
	}
	return s, nil
}

// Look returns the existing topics of a prefix, without their settings. Any reachable broker
// answers. It uses the client's connections, and leaves the client open.
func Look(client sarama.Client, prefix string) (map[string]Topic, error) {
	metadata, err := metadataOf(client, NamesOf(prefix).All())
	if err != nil {
		return nil, err
	}
	have, err := toFound(metadata)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Topic)
	for name, t := range have {
		out[name] = Topic{t.id, t.partitions, t.replication, t.behind, t.leaderless, nil}
	}
	return out, nil
}
