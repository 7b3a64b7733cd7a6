package receive

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
)

var slackType = &Type{
	Name: "slack", title: "Slack",
	Fields: []string{"url_file", "url_env", "ca", "plain_http"},
	read:   (*Fields).http,
	open:   posting(func(p *poster, _ func() time.Time) Receiver { return &slack{p} }),
}

// slack posts to an incoming webhook of a channel.
// https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
type slack struct{ *poster }

// Bounds of Slack's blocks, in characters.
const (
	slackHeader  = 150
	slackSection = 2900
)

// slackEscape takes the three characters that Slack's markup is made of, so that no text mentions a channel.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Send posts the message: its text for notifications on phones, and blocks.
func (s *slack) Send(ctx context.Context, m *note.Message) error {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type block struct {
		Type     string `json:"type"`
		Text     *text  `json:"text,omitempty"`
		Elements []text `json:"elements,omitempty"`
	}
	blocks := []block{{Type: "header", Text: &text{"plain_text", note.Cut(m.Title, slackHeader)}}}
	if m.Text != "" {
		// Escaped, a character may be five; a block that is too long would be refused.
		blocks = append(blocks, block{Type: "section", Text: &text{"mrkdwn", slackEscape.Replace(note.Cut(m.Text, slackSection/5))}})
		if len(slackEscape.Replace(m.Text)) <= slackSection {
			blocks[1].Text.Text = slackEscape.Replace(m.Text)
		}
	}
	foot := "tallygate notify, route " + m.Route
	if m.Link != "" {
		foot += ", <" + slackEscape.Replace(m.Link) + "|console>"
	}
	blocks = append(blocks, block{Type: "context", Elements: []text{{"mrkdwn", foot}}})
	body, err := json.Marshal(struct {
		Text   string  `json:"text"`
		Blocks []block `json:"blocks"`
	}{slackEscape.Replace(m.Title), blocks})
	if err != nil {
		return setup(err)
	}
	_, err = s.post(ctx, "", body, nil)
	return err
}
