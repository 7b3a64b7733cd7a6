package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/rules/document"
)

var none = testrun.NoEnv

// files is a folder with secrets; whole is a file with every field.
func whole(t *testing.T) (text, folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, secret := range map[string]string{"slack": "https://hooks.slack.com/services/T0/B0/hush\n", "old": "old-hush", "new": "new-hush", "smtp": "hush"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = `
receivers:
  - name: hook
    webhook: {url: https://hooks.example.com/x, secret_files: [DIR/new, DIR/old], token_env: HOOK_TOKEN}
    keys: shown
    timeout: 3s
    max_age: 1d
  - {name: chat, slack: {url_file: DIR/slack}}
  - {name: am, alertmanager: {url: "http://127.0.0.1:9093", repeat: 30s, keep: 10m, labels: {team: shop}}}
  - name: mail
    email: {server: "smtp.example.com:587", from: t@example.com, to: [a@example.com, b@example.com], user: t, password_file: DIR/smtp}
routes:
  - {name: oncall, on: [fuse, hits, enforcer-stale], to: [chat, am], rate: 5/1m, every: 10m, wait: 0s}
  - name: fraud
    on: verdict
    rules: ["card-*"]
    to: mail
    rate: none
    resolved: false
    title: "{{.Count}} times {{.Rule}}"
    text: "{{range .Examples}}{{.KeyText}} {{clock .At}}\n{{end}}"
watch:
  poll: 2s
  hits: {above: 10%, below: 7.5%, for: 1m, keys: 50}
  lag: {above: 1m, for: 20s}
  enforcers: {for: 15s}
  aggregators: {for: 20s}
console: https://console.example.com
`
	return strings.ReplaceAll(text, "DIR", folder), folder
}

func TestTheWholeFile(t *testing.T) {
	text, folder := whole(t)
	c, err := Parse("notify.yaml", []byte(text), testrun.Env(map[string]string{"HOOK_TOKEN": "x"}))
	if err != nil {
		t.Fatal(err)
	}
	hook, oncall, fraud := c.Receiver("hook"), c.Routes[0], c.Routes[1]
	if !hook.Shown || hook.Timeout != 3*time.Second || hook.MaxAge != 24*time.Hour || len(hook.Secrets) != 2 || hook.Secrets[1].File != folder+"/old" || hook.Token.Env != "HOOK_TOKEN" {
		t.Errorf("%+v", hook)
	}
	if am := c.Receiver("am"); am.Repeat != 30*time.Second || am.Keep != 10*time.Minute || am.Labels["team"] != "shop" || am.Shown {
		t.Errorf("%+v", am)
	}
	if mail := c.Receiver("mail").Email; !reflect.DeepEqual(*mail, receive.Email{Server: "smtp.example.com:587", TLS: "starttls", From: "t@example.com", To: []string{"a@example.com", "b@example.com"}, User: "t", Password: receive.Value{File: folder + "/smtp"}}) {
		t.Errorf("%+v", mail)
	}
	if oncall.Messages != 5 || oncall.Per != time.Minute || oncall.Every != 10*time.Minute || oncall.Wait != 0 || !oncall.Resolved {
		t.Errorf("%+v", oncall)
	}
	if fraud.Per != 0 || fraud.Resolved || fraud.Wait != defaultWait || len(c.RoutesTo("mail")) != 1 || len(c.RoutesTo("hook")) != 0 {
		t.Errorf("%+v", fraud)
	}
	if want := (Watch{Poll: 2 * time.Second, HitsAbove: 0.1, HitsBelow: 0.075, HitsFor: time.Minute, HitsKeys: 50, LagAbove: time.Minute, LagFor: 20 * time.Second, StaleFor: 15 * time.Second, GoneFor: 20 * time.Second}); c.Watch != want {
		t.Errorf("%+v, want %+v", c.Watch, want)
	}
	m := sample("fraud", note.Verdict)
	if err := fraud.Render(m); err != nil || m.Title != "2 times search-combined" || m.Text != "uid=••• 2026-11-21 10:00:00Z\nuid=••• 2026-11-21 10:00:00Z" {
		t.Errorf("%q %q %v", m.Title, m.Text, err)
	}
}

func TestWhatARouteWants(t *testing.T) {
	r := &Route{Name: "fraud", On: []note.Kind{note.Verdict, note.Fuse}, Rules: []string{"card-*"}}
	for _, c := range []struct {
		n    note.Note
		want bool
	}{
		{note.Note{Kind: note.Verdict, Rule: "card-testing"}, true},
		{note.Note{Kind: note.Verdict, Rule: "card-testing/hourly"}, true},
		{note.Note{Kind: note.Verdict, Rule: "search"}, false},
		{note.Note{Kind: note.Fuse, Rule: "card-x"}, true},
		{note.Note{Kind: note.Command, Rule: "card-x"}, false},
		{note.Note{Kind: note.Verdict, Rule: "card-x", Routes: []string{"oncall"}}, false},
		{note.Note{Kind: note.Verdict, Rule: "card-x", Routes: []string{"fraud", "oncall"}}, true},
		{note.Note{Kind: note.Verdict, Rule: "card-x", State: note.Resolved}, false},
	} {
		if got := r.Wants(&c.n); got != c.want {
			t.Errorf("%+v: %v", c.n, got)
		}
	}
}

// Every mistake is told, with its place and what to write, and no error shows a secret that stands where it
// should not.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ text, line, want string }{
		{"", "1:1", "the file is empty"},
		{"receivers: []", "1:1", "there is no `routes`"},
		{"receivers: [{name: a}]\nroutes: []", "1:13", "a receiver is one of webhook, slack, teams, alertmanager, email"},
		{"receivers: [{name: a, slack: {url_env: U}, teams: {url_env: U}}]\nroutes: []", "1:13", "a receiver is one of"},
		{"receivers: [{name: a, slack: {url: 'https://hooks.slack.com/services/hush'}}]\nroutes: []", "1:31", `unknown field "url"`},
		{"receivers: [{name: a, slack: hush-hush}]\nroutes: []", "1:30", `slack is a mapping, not "…"`},
		{"receivers: [{name: a, slack: {url_file: /there/is/none}}]\nroutes: []", "1:41", "read a secret: open /there/is/none"},
		{"receivers: [{name: a, slack: {url_env: NONE}}]\nroutes: []", "1:40", "NONE is not in the environment"},
		{"receivers: [{name: a, slack: {}}]\nroutes: []", "1:30", "slack needs an address"},
		{"receivers: [{name: a, webhook: {url: 'http://example.com/hush'}}]\nroutes: []", "1:38", "say plain_http: true"},
		{"receivers: [{name: a, webhook: {url: 'https://u:hush@example.com/'}}]\nroutes: []", "1:38", "the address has a user in it"},
		{"receivers: [{name: a, webhook: {url: 'file:///etc/hush'}}]\nroutes: []", "1:38", "the address is not as in"},
		{"receivers: [{name: a, webhook: {url: 'https://x/', url_env: U}}]\nroutes: []", "1:38", "give one of url, url_file and url_env"},
		{"receivers: [{name: a, webhook: {url: 'https://x/', secret: hush}}]\nroutes: []", "1:52", `unknown field "secret"`},
		{"receivers: [{name: A!, webhook: {url: 'https://x/'}}]\nroutes: []", "1:20", "1 to 64 of a-z"},
		{"receivers: [{name: a, webhook: {url: 'https://x/'}}, {name: a, webhook: {url: 'https://x/'}}]\nroutes: []", "1:61", "two receivers of this name"},
		{"receivers: [{name: a, keys: all, webhook: {url: 'https://x/'}}]\nroutes: []", "1:29", "keys is one of masked, shown"},
		{"receivers: [{name: a, timeout: 5m, webhook: {url: 'https://x/'}}]\nroutes: []", "1:32", "timeout is from 100ms to 1m"},
		{"receivers: [{name: a, email: {server: x, from: a@b, to: 'a@b\\r\\nBcc: c@d'}}]\nroutes: []", "1:39", "server is HOST:PORT"},
		{"receivers: [{name: a, email: {server: 'x:25', from: 'Me <a@b>', to: a@b}}]\nroutes: []", "1:53", "no address of e-mail"},
		{"receivers: [{name: a, email: {server: 'x:25', from: a@b, to: \"a@b\\r\\nBcc: c@d\"}}]\nroutes: []", "1:62", "no address of e-mail"},
		{"receivers: [{name: a, email: {server: 'x:25', from: a@b, to: a@b, user: u}}]\nroutes: []", "1:30", "user and password need each other"},
		{"receivers: [{name: a, email: {server: 'x:25', from: a@b, to: a@b, user: u, password: hush}}]\nroutes: []", "1:76", `unknown field "password"`},
		{"receivers: [{name: a, email: {server: 'x:25', from: a@b, to: a@b, user: u, password_env: U, tls: none}}]\nroutes: []", "1:98", "without TLS everybody on the way reads the password"},
	} {
		checkMistake(t, c.text, c.line, c.want)
	}
	const one = "receivers: [{name: a, webhook: {url: 'https://x/'}}]\n"
	for _, c := range []struct{ text, line, want string }{
		{"routes: [{name: r, on: fuse}]", "2:10", "there is no `to`"},
		{"routes: [{name: r, on: fuses, to: a}]", "2:24", `did you mean "fuse"?`},
		{"routes: [{name: r, on: fuse, to: [b]}]", "2:35", "there is no receiver of this name"},
		{"routes: [{name: r, on: fuse, to: [a, a]}]", "2:38", "this receiver is named twice"},
		{"routes: [{name: r, on: fuse, to: a}, {name: r, on: fuse, to: a}]", "2:45", "two routes of this name"},
		{"routes: [{name: r, on: fuse, to: a, rate: 20}]", "2:43", "rate is a number of messages in a time"},
		{"routes: [{name: r, on: fuse, to: a, rate: 0/1m}]", "2:43", "rate is a number of messages in a time"},
		{"routes: [{name: r, on: fuse, to: a, wait: 5}]", "2:43", "wait: "},
		{"routes: [{name: r, on: fuse, to: a, rules: '[a'}]", "2:44", "no pattern of rules' names"},
		{"routes: [{name: r, on: fuse, to: a, text: '{{.Rle}}'}]", "2:43", "can't evaluate field Rle"},
		{"routes: [{name: r, on: fuse, to: a, text: '{{.Rule'}]", "2:43", "unclosed action"},
		{"routes: [{name: r, on: fuse, to: a, kinds: fuse}]", "2:37", `did you mean "on"?`},
		{"routes: []\nwatch: {hits: {above: 5}}", "3:23", "above is a share"},
		{"routes: []\nwatch: {hits: {above: 5%, below: 6%}}", "3:34", "below is more than above"},
		{"routes: []\nwatch: {poll: 1ms}", "3:15", "poll is from 1s to 1m"},
		{"routes: []\nconsole: console.example.com", "3:10", "console is the console's address"},
	} {
		checkMistake(t, one+c.text, c.line, c.want)
	}
}

func checkMistake(t *testing.T, text, line, want string) {
	t.Helper()
	_, err := Parse("notify.yaml", []byte(text), testrun.Env(map[string]string{"U": "https://example.com/hush"}))
	list, _ := errors.AsType[document.Errors](err)
	if len(list) == 0 || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "notify.yaml:"+line+":") {
		t.Errorf("%s:\n%v\nwant %s %s", text, err, line, want)
	}
	if err != nil && strings.Contains(err.Error(), "hush") {
		t.Errorf("%s: the error shows a secret:\n%v", text, err)
	}
}

// A template's output is bounded, whatever it repeats.
func TestATemplateIsBounded(t *testing.T) {
	text := "receivers: [{name: a, webhook: {url: 'https://x/'}}]\nroutes: [{name: r, on: fuse, to: a, text: '{{define \"x\"}}aaaaaaaaaaaaaaaa{{template \"x\"}}{{end}}{{template \"x\"}}'}]"
	c, err := Parse("notify.yaml", []byte(text), none)
	if err != nil {
		t.Fatal(err)
	}
	m := sample("r", note.Fuse)
	if err := c.Routes[0].Render(m); err != nil || len(m.Text) > note.MaxText || !strings.HasSuffix(m.Text, "…") {
		t.Errorf("%d bytes, %v", len(m.Text), err)
	}
}
