package receive

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
)

var alertmanagerType = &Type{
	Name: "alertmanager", title: "Alertmanager",
	Fields: []string{"url", "url_file", "url_env", "token_file", "token_env", "ca", "plain_http", "repeat", "keep", "labels"},
	read:   (*Fields).http,
	open:   posting(func(p *poster, now func() time.Time) Receiver { return &alertmanager{p, now} }),
}

// alertmanager posts alerts to Alertmanager's API v2, or to what speaks it.
// https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
type alertmanager struct {
	*poster
	now func() time.Time
}

// alert is one that is posted.
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// missed is after how many repeats that do not come an alert ends by itself.
const missed = 4

// Send posts the message as one alert. A state's alert lasts until its end is told, or until the repeats stay
// away; of what merely happened it lasts a fixed time.
func (a *alertmanager) Send(ctx context.Context, m *note.Message) error {
	labels := maps.Clone(a.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for name, value := range map[string]string{"alertname": AlertName(m.Kind), "source": "tallygate", "kind": string(m.Kind), "rule": m.Rule, "subject": m.Subject} {
		if value != "" {
			labels[name] = value
		}
	}
	now := a.now().UTC()
	is := alert{Labels: labels, Annotations: map[string]string{"summary": m.Title, "description": m.Text, "delivery": m.ID}, StartsAt: m.First, GeneratorURL: m.Link}
	switch m.State {
	case note.Firing:
		is.EndsAt = now.Add(missed * a.Repeat)
	case note.Resolved:
		is.EndsAt = m.Last
		if is.EndsAt.After(now) {
			is.EndsAt = now
		}
		is.StartsAt = earlier(is.StartsAt, is.EndsAt.Add(-time.Millisecond))
	default:
		is.EndsAt = now.Add(a.Keep)
	}
	body, err := json.Marshal([]alert{is})
	if err != nil {
		return setup(err)
	}
	_, err = a.post(ctx, "/api/v2/alerts", body, nil)
	return err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// AlertName is an alert's name for a kind: TallygateRulesRejected.
func AlertName(kind note.Kind) string {
	var b strings.Builder
	b.WriteString("Tallygate")
	for part := range strings.SplitSeq(string(kind), "-") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
