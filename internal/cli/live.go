package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"

	"github.com/tallygate/tallygate/internal/apiclient"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/replay"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// liveGroup is an aggregator that commands ask for what its group runs and has counted. Its Close is the client's.
type liveGroup struct{ *apiclient.Client }

// liveGroups is replay.Aggregators.
func liveGroups(o *ops.Options) func() (replay.Aggregator, error) {
	at := apiclient.NewOptions(o)
	return func() (replay.Aggregator, error) {
		aggregator, err := at.Open()
		if err != nil {
			return nil, err
		}
		return liveGroup{aggregator}, nil
	}
}

// Rules implements replay.Aggregator.
func (g liveGroup) Rules(ctx context.Context) (*rules.Set, error) {
	body, err := g.Get(ctx, "/v1/rules")
	if err != nil {
		return nil, fmt.Errorf("load the group's rules: %w", err)
	}
	var published struct {
		Version int64             `json:"version"`
		Source  string            `json:"source"`
		Files   map[string][]byte `json:"files"`
	}
	err = json.Unmarshal(body, &published)
	if err == nil && published.Source == "" {
		err = errors.New("there are none in it")
	}
	if err != nil {
		return nil, fmt.Errorf("load the group's rules: read the aggregator's response: %w", err)
	}
	beside := func(name string) ([]byte, error) {
		if text, ok := published.Files[name]; ok {
			return text, nil
		}
		return nil, fs.ErrNotExist
	}
	set, err := rules.CompilePublished("the group's rules", []byte(published.Source), beside)
	if err != nil {
		return nil, fmt.Errorf("version %d of the group's rules does not compile here: %w", published.Version, err)
	}
	return set, nil
}

// Explain implements replay.Aggregator.
func (g liveGroup) Explain(ctx context.Context, key []event.Dim) ([]rules.Explanation, error) {
	q := url.Values{"exact": {"true"}}
	for _, d := range key {
		name := d.Name
		if name == "api" { // alone it leaves only an API's rules
			name = "key.api"
		}
		q.Set(name, d.Value)
	}
	body, err := g.Get(ctx, "/v1/explain?"+q.Encode())
	if err != nil {
		return nil, err
	}
	var a explainAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("read the aggregator's response: %w", err)
	}
	out := make([]rules.Explanation, len(a.Rules))
	for i := range a.Rules {
		out[i] = a.Rules[i].Explanation
	}
	return out, nil
}
