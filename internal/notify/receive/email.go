package receive

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	netmail "net/mail"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/rules/document"
)

// emailType is the only one that nothing is posted to.
var emailType = &Type{
	Name: "email", title: "e-mail", Synonyms: map[string]string{"mail": "email", "smtp": "email", "smarthost": "server"},
	Fields: []string{"server", "tls", "from", "to", "user", "password_file", "password_env", "ca"},
	read:   (*Fields).email,
	open: func(c *Config, getenv func(string) string, now func() time.Time, _ *slog.Logger) (Receiver, error) {
		return newEmail(c, getenv, now)
	},
}

// Email has the server and the addresses of a receiver of e-mail.
type Email struct {
	Server   string // HOST:PORT
	TLS      string // starttls, tls or none
	From     string
	To       []string
	User     string
	Password Value
}

func (r *Fields) email(o *document.Object, to *Config) {
	e := &Email{TLS: "starttls"}
	to.Email = e
	if n := r.Required(o, "server", "as in server: smtp.example.com:587"); n != nil {
		e.Server, _ = r.Text(n, "server")
		if host, port, err := net.SplitHostPort(e.Server); err != nil || host == "" || port == "" {
			r.Fail(n, "as in server: smtp.example.com:587", "server is HOST:PORT")
		}
	}
	if n := o.Get("tls"); n != nil {
		e.TLS, _ = r.Word(n, "tls", "starttls", "tls", "none")
	}
	if n := r.Required(o, "from", "as in from: tallygate@example.com"); n != nil {
		e.From = r.address(n)
	}
	if n := r.Required(o, "to", "as in to: [oncall@example.com]"); n != nil {
		for _, item := range r.OneOrMore(n, "to") {
			e.To = append(e.To, r.address(item))
		}
	}
	r.textIf(o, "user", &e.User)
	e.Password = r.value(o, "password")
	host, _, _ := net.SplitHostPort(e.Server)
	switch {
	case (e.User == "") == e.Password.Given():
		r.Fail(o.Node, "as in user: tallygate, password_file: /etc/tallygate/smtp-password", "user and password need each other")
	case e.TLS == "none" && e.User != "" && !isLoopback(host):
		r.Fail(o.At("tls"), "use starttls or tls", "without TLS everybody on the way reads the password")
	}
}

// address reads one of e-mail. A mail's headers have it, so it is one line, and nothing but an address.
func (r *Fields) address(n *yaml.Node) string {
	text, ok := r.Text(n, "an address")
	if a, err := netmail.ParseAddress(text); ok && (err != nil || a.Address != text) {
		r.Fail(n, "as in oncall@example.com, without a name", "this is no address of e-mail")
	}
	return text
}

// email sends mails to a server for outgoing mail.
type email struct {
	*Config
	getenv func(string) string
	now    func() time.Time
	host   string
	port   int
}

func newEmail(c *Config, getenv func(string) string, now func() time.Time) (*email, error) {
	host, port, err := net.SplitHostPort(c.Email.Server)
	if err != nil {
		return nil, fmt.Errorf("receiver %s: %w", c.Name, err)
	}
	e := &email{Config: c, getenv: getenv, now: now, host: host}
	if e.port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("receiver %s: the port of server is no number", c.Name)
	}
	if _, err := e.trust(); err != nil {
		return nil, fmt.Errorf("receiver %s: %w", c.Name, err)
	}
	return e, nil
}

// trust makes the TLS settings, by the file ca as it is now: it may be replaced.
func (e *email) trust() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.host}
	if e.CA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(e.CA)
	if err != nil {
		return nil, fmt.Errorf("read ca: %w", err)
	}
	if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca %s contains no PEM certificate", e.CA)
	}
	return c, nil
}

// Close has nothing to end: each mail has a connection of its own.
func (e *email) Close() {}

// client makes a client with the password as it is now.
func (e *email) client() (*mail.Client, error) {
	trust, err := e.trust()
	if err != nil {
		return nil, err
	}
	options := []mail.Option{mail.WithPort(e.port), mail.WithTimeout(e.Timeout), mail.WithTLSConfig(trust)}
	switch e.Email.TLS {
	case "tls":
		options = append(options, mail.WithSSL())
	case "none":
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	if e.Email.User != "" {
		password, err := e.Email.Password.Read(e.getenv)
		if err != nil {
			return nil, err
		}
		auth := mail.SMTPAuthAutoDiscover
		if e.Email.TLS == "none" { // on this machine: see config
			auth = mail.SMTPAuthPlainNoEnc
		}
		options = append(options, mail.WithSMTPAuth(auth), mail.WithUsername(e.Email.User), mail.WithPassword(password))
	}
	return mail.NewClient(e.host, options...)
}

// Send sends one mail. Its Message-ID is made of the delivery's id.
func (e *email) Send(ctx context.Context, m *note.Message) error {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := errors.Join(msg.From(e.Email.From), msg.To(e.Email.To...)); err != nil {
		return setup(err)
	}
	_, domain, _ := strings.Cut(e.Email.From, "@")
	msg.SetMessageIDWithValue(m.ID + "@" + domain)
	msg.SetDateWithValue(e.now())
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader(DeliveryHeader, m.ID)
	msg.Subject("[tallygate] " + note.OneLine(m.Title))
	text := m.Title + "\n\n" + m.Text + "\n"
	if m.Link != "" {
		text += "\n" + m.Link + "\n"
	}
	msg.SetBodyString(mail.TypeTextPlain, text+"\n-- \ntallygate notify, route "+m.Route+"\n")
	client, err := e.client()
	if err != nil {
		return setup(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*e.Timeout) // for all of the conversation
	defer cancel()
	if err := client.DialAndSendWithContext(ctx, msg); err != nil {
		return mailFailure(err)
	}
	return nil
}

// noLogin finds a server's answer to a user and a password that it does not take: RFC 4954.
var noLogin = regexp.MustCompile(`\b53[0458] `)

// mailFailure makes a Failure of an error of the conversation.
func mailFailure(err error) error {
	f := &Failure{Err: errors.New(note.Cut(note.OneLine(err.Error()), 300)), Reason: Unreachable}
	send, ok := errors.AsType[*mail.SendError](err)
	switch {
	case ok && send.Reason == mail.ErrSMTPMailFrom, ok && send.Reason == mail.ErrSMTPRcptTo:
		f.Reason = Denied // of our addresses, not of this message: others change that
	case ok && send.ErrorCode() >= 500:
		f.Reason, f.Lost = Refused, true
	case ok && send.ErrorCode() >= 400:
		f.Reason = Limited
	case noLogin.MatchString(err.Error()):
		f.Reason = Denied
	}
	return f
}
