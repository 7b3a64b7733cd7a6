package receive

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
)

// Headers of a webhook.
const (
	DeliveryHeader  = "Tallygate-Delivery"  // the message's id
	SignatureHeader = "Tallygate-Signature" // t=UNIX,v1=HEX, where there are secrets
)

var webhookType = &Type{
	Name: "webhook", title: "webhook",
	Fields: []string{"url", "url_file", "url_env", "secret_file", "secret_env", "secret_files", "token_file", "token_env", "ca", "plain_http"},
	read:   (*Fields).http,
	open:   posting(func(p *poster, now func() time.Time) Receiver { return &webhook{p, now} }),
}

// webhook posts messages as they are.
type webhook struct {
	*poster
	now func() time.Time
}

// Send posts the message.
func (w *webhook) Send(ctx context.Context, m *note.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return setup(err)
	}
	header := http.Header{}
	header.Set(DeliveryHeader, m.ID)
	if len(w.Secrets) > 0 {
		var secrets []string
		for _, s := range w.Secrets {
			secret, err := s.Read(w.getenv)
			if err != nil {
				return setup(err)
			}
			secrets = append(secrets, secret)
		}
		header.Set(SignatureHeader, Sign(body, w.now(), secrets...))
	}
	_, err = w.post(ctx, "", body, header)
	return err
}

// Sign is the header that proves who sent a body, and when: the HMAC-SHA256 of the time, a dot and the body, one
// for each secret, so that secrets can be changed without a gap.
func Sign(body []byte, at time.Time, secrets ...string) string {
	t := strconv.FormatInt(at.Unix(), 10)
	parts := []string{"t=" + t}
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(t + "."))
		mac.Write(body)
		parts = append(parts, "v1="+hex.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(parts, ",")
}
