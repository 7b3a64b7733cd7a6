package aggregator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

// askGroupWithin bounds how long a start with a broken rule file waits for Kafka.
const askGroupWithin = 30 * time.Second

// goOnWithGroup makes an instance with a broken rule file start with the rules that its group runs.
// If there are none, it returns what is wrong with the file.
func (a *Program) goOnWithGroup(path string, broken error) error {
	cfg := a.Config
	cfg.Brokers, cfg.Kafka, cfg.Logger, cfg.Compile = a.Kafka.Brokers, clients.Sarama(a.Kafka), a.Log, compileFile
	ctx, cancel := context.WithTimeout(context.Background(), askGroupWithin)
	defer cancel()
	set, file, version, err := aggregate.GroupRules(ctx, cfg)
	switch {
	case errors.Is(err, aggregate.ErrNoGroupRules):
		return broken
	case err != nil:
		return errors.Join(broken, fmt.Errorf("ask for the rules that the group runs: %w", err))
	}
	file.Name = path // the followed file
	a.Config.Rules, a.Config.RuleFile, a.broken = set, file, broken
	a.Log.Error("the rule file is broken; continuing with the group's rules", "file", path, "version", version, "error", broken)
	return nil
}

// fileState is the state of this instance's rule file: valid or broken.
type fileState struct {
	ok, since prometheus.Gauge

	mu      sync.Mutex
	is      bool
	why     error // it is not
	started error // why this instance has never had a good file; nil if it had one
}

func newFileState(reg prometheus.Registerer, broken error) *fileState {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tallygate_" + name, Help: help})
		if reg != nil {
			_ = reg.Register(g) // refused only if a test starts a program twice
		}
		return g
	}
	f := &fileState{
		ok:      gauge("rules_file_ok", "1 while this instance's rule file is valid, 0 while it is broken and older rules apply."),
		since:   gauge("rules_file_ok_since_timestamp_seconds", "Time at which tallygate_rules_file_ok last changed."),
		is:      broken == nil,
		why:     broken,
		started: broken,
	}
	f.show()
	return f
}

func (f *fileState) show() {
	f.ok.Set(map[bool]float64{true: 1}[f.is])
	f.since.Set(float64(time.Now().UnixMilli()) / 1000)
}

// note records what was wrong with the file when it was last read; nil if it was good.
func (f *fileState) note(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	good := why == nil
	if f.why = why; good {
		f.started = nil
	}
	if good != f.is {
		f.is = good
		f.show()
	}
}

// wrong returns the file's mistake; nil if it is good.
func (f *fileState) wrong() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

// ready is an error until an instance that started with a broken file has read a good one. A
// rollout stops there, while running instances continue to answer whatever happens to their files.
// It does not say what is wrong with the file, because every caller may ask.
func (f *fileState) ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started == nil {
		return nil
	}
	return errors.New("rules: the rule file is broken, as the log says; events are counted by the rules that the group runs")
}
