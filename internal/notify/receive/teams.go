package receive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
)

var teamsType = &Type{
	Name: "teams", title: "Teams", Synonyms: map[string]string{"msteams": "teams"},
	Fields: []string{"url_file", "url_env", "ca", "plain_http"},
	read:   (*Fields).http,
	open:   posting(func(p *poster, _ func() time.Time) Receiver { return &teams{p} }),
}

// teams posts an Adaptive Card to a workflow's webhook ("Post to a channel when a webhook request is received").
// https://learn.microsoft.com/en-us/connectors/teams/#microsoft-teams-webhook
type teams struct{ *poster }

// cardItem is an element of a card. Texts are runs, which have no markup.
type cardItem struct {
	Type    string    `json:"type"`
	Inlines []cardRun `json:"inlines"`
}

type cardRun struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Weight   string `json:"weight,omitempty"`
	Size     string `json:"size,omitempty"`
	IsSubtle bool   `json:"isSubtle,omitempty"`
}

type cardAction struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

type card struct {
	Schema  string       `json:"$schema"`
	Type    string       `json:"type"`
	Version string       `json:"version"`
	Body    []cardItem   `json:"body"`
	Actions []cardAction `json:"actions,omitempty"`
}

type attachment struct {
	ContentType string `json:"contentType"`
	Content     card   `json:"content"`
}

// Send posts the card.
func (t *teams) Send(ctx context.Context, m *note.Message) error {
	line := func(r cardRun) cardItem {
		r.Type = "TextRun"
		return cardItem{"RichTextBlock", []cardRun{r}}
	}
	c := card{Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
		Body: []cardItem{line(cardRun{Text: m.Title, Weight: "Bolder", Size: "Medium"})}}
	for text := range strings.SplitSeq(m.Text, "\n") {
		if text != "" {
			c.Body = append(c.Body, line(cardRun{Text: text}))
		}
	}
	c.Body = append(c.Body, line(cardRun{Text: "tallygate notify, route " + m.Route, IsSubtle: true, Size: "Small"}))
	if m.Link != "" {
		c.Actions = []cardAction{{"Action.OpenUrl", "console", m.Link}}
	}
	body, err := json.Marshal(struct {
		Type        string       `json:"type"`
		Attachments []attachment `json:"attachments"`
	}{"message", []attachment{{"application/vnd.microsoft.card.adaptive", c}}})
	if err != nil {
		return setup(err)
	}
	answer, err := t.post(ctx, "", body, nil)
	if err == nil && bytes.Contains(answer, []byte("HTTP error 429")) { // a connector's way to say it
		return &Failure{Err: errors.New("it answers 200, and that it wants fewer messages"), Reason: Limited}
	}
	return err
}
