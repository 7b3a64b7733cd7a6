package receive

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testca"
)

// smtpServer is a small server for outgoing mail: RFC 5321, with STARTTLS and AUTH.
type smtpServer struct {
	t      *testing.T
	addr   string
	tls    *tls.Config
	direct bool // TLS from the first byte

	mu      sync.Mutex
	answers map[string]string // by command, instead of what it would answer
	mails   []string
	rcpts   []string
	auth    []string // what AUTH PLAIN said
	inTLS   bool
}

func startSMTP(t *testing.T, ca *testca.Authority, direct bool) *smtpServer {
	cert, key := ca.Issue("mail")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &smtpServer{t: t, addr: l.Addr().String(), tls: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, direct: direct, answers: map[string]string{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return s
}

func (s *smtpServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	secure := s.direct
	if s.direct {
		conn = tls.Server(conn, s.tls)
	}
	in := bufio.NewReader(conn)
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	say("220 mail")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		command = strings.ToUpper(command)
		s.mu.Lock()
		answer := s.answers[command]
		s.mu.Unlock()
		if answer != "" {
			say(answer)
			continue
		}
		switch command {
		case "EHLO":
			say("250-mail")
			if !secure {
				say("250-STARTTLS")
			} else {
				say("250-AUTH PLAIN")
			}
			say("250 8BITMIME")
		case "STARTTLS":
			say("220 go on")
			c := tls.Server(conn, s.tls)
			conn, in, secure = c, bufio.NewReader(c), true
		case "AUTH":
			text, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			s.note(func() { s.auth = append(s.auth, string(text)) })
			say("235 ok")
		case "RCPT":
			s.note(func() { s.rcpts = append(s.rcpts, rest) })
			say("250 ok")
		case "DATA":
			say("354 go on")
			var b strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil || line == ".\r\n" {
					break
				}
				b.WriteString(strings.TrimPrefix(line, "."))
			}
			s.note(func() { s.mails, s.inTLS = append(s.mails, b.String()), secure })
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (s *smtpServer) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// A mail is one text, to whom the file says and to nobody else, whatever keys and reasons contain; the password is
// said only inside TLS.
func TestEmail(t *testing.T) {
	ca := testca.New(t)
	for how, direct := range map[string]bool{"starttls": false, "tls": true} {
		s := startSMTP(t, ca, direct)
		to := receiver(t, &Config{Name: "mail", Type: "email", CA: ca.File(), Email: &Email{
			Server: s.addr, TLS: how, From: "tallygate@example.com", To: []string{"a@example.com", "b@example.com"}, User: "t", Password: secretFile(t, "hush\n")}})
		m := message()
		m.Title += "\r\nBcc: all@example.com"
		if err := to.Send(t.Context(), m); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		is, err := mail.ReadMessage(strings.NewReader(s.mails[0]))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(quotedprintable.NewReader(is.Body))
		if h := is.Header; len(s.rcpts) != 2 || h.Get("Bcc") != "" || h.Get("Message-Id") != "<"+m.ID+"@example.com>" || h.Get("Auto-Submitted") != "auto-generated" || !strings.HasPrefix(h.Get("Subject"), "[tallygate] 3 verdicts: rule card-testing") {
			t.Errorf("%s: %v to %v", how, h, s.rcpts)
		}
		if !strings.Contains(string(body), "uid=•••  block until later: 11 of 10") || !strings.Contains(string(body), m.Link) || strings.Contains(string(body), "42") {
			t.Errorf("%s", body)
		}
		if !s.inTLS || len(s.auth) != 1 || s.auth[0] != "\x00t\x00hush" {
			t.Errorf("%s: in TLS %v, authenticated by %q", how, s.inTLS, s.auth)
		}
	}
}

func TestEmailFailures(t *testing.T) {
	ca := testca.New(t)
	s := startSMTP(t, ca, false)
	c := &Config{Name: "mail", Type: "email", CA: ca.File(), Email: &Email{Server: s.addr, TLS: "starttls", From: "tallygate@example.com", To: []string{"a@example.com"}, User: "t", Password: secretFile(t, "hush")}}
	to := receiver(t, c)
	for _, w := range []struct {
		command, answer string
		reason          string
		lost            bool
	}{
		{"AUTH", "535 5.7.8 bad credentials", Denied, false},
		{"MAIL", "550 5.1.0 not from here", Denied, false},
		{"RCPT", "550 5.1.1 no such user", Denied, false},
		{"RCPT", "451 4.7.1 later", Denied, false},
		{"DATA", "554 5.6.0 this is spam", Refused, true},
		{"DATA", "452 4.3.1 full", Limited, false},
		{"STARTTLS", "454 not now", Unreachable, false},
	} {
		s.note(func() { s.answers = map[string]string{w.command: w.answer} })
		f := Failed(to.Send(t.Context(), message()))
		if f.Reason != w.reason || f.Lost != w.lost || strings.Contains(f.Error(), "hush") {
			t.Errorf("%s %s: %+v", w.command, w.answer, f)
		}
	}
	s.note(func() { s.answers = map[string]string{} })
	other := *c
	other.CA = ""
	if f := Failed(receiver(t, &other).Send(t.Context(), message())); f.Reason != Unreachable {
		t.Errorf("a certificate that nobody trusts: %+v", f)
	}
	if len(s.mails) != 0 {
		t.Errorf("%d mails", len(s.mails))
	}
}
