package config

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/notify/receive"
	"github.com/tallygate/tallygate/rules/document"
)

// words lists the words of files of this language, for guesses at what was meant.
var words = &document.Vocabulary{
	Empty:      "the file is empty",
	EmptyHint:  "it begins with `receivers:` and `routes:`",
	SecondHint: "put everything into one document",
	Foreign:    func([]string) string { return "" },
	Fields:     []string{"receivers", "routes", "watch", "console", "name", "on", "to", "rules", "wait", "every", "rate"},
	Synonyms: map[string]document.Synonym{
		"kinds": {Fields: []string{"on"}}, "events": {Fields: []string{"on"}}, "receiver": {Fields: []string{"to", "receivers"}},
		"groupinterval": {Fields: []string{"every"}}, "groupwait": {Fields: []string{"wait"}}, "group": {Fields: []string{"every"}},
		"repeatinterval": {Fields: []string{"repeat", "every"}}, "sendresolved": {Fields: []string{"resolved"}},
		"apiurl": {Fields: []string{"url_file"}}, "url": {Fields: []string{"url_file"}, Write: "the address is a secret: put it into a file, and name that"},
		"password": {Fields: []string{"password_file"}, Write: "put it into a file, and name that"}, "secret": {Fields: []string{"secret_file"}, Write: "put it into a file, and name that"},
		"token":    {Fields: []string{"token_file"}, Write: "put it into a file, and name that"},
		"template": {Fields: []string{"text"}},
	},
}

func init() {
	for _, t := range receive.Types {
		for name, meant := range t.Synonyms {
			words.Synonyms[name] = document.Synonym{Fields: []string{meant}}
		}
	}
}

// share reads a percentage, as a share.
func (r *reader) share(o *document.Object, field string, into *float64) {
	n := o.Get(field)
	if n == nil {
		return
	}
	text, ok := r.Text(n, field)
	number, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(number, 64)
	if ok && (!percent || err != nil || !(value > 0 && value <= 100)) {
		r.Fail(n, "as in 5%", "%s is a share, more than 0%% and at most 100%%", field)
		return
	}
	*into = value / 100
}

func (r *reader) number(n *yaml.Node, what string) int {
	text, ok := r.Text(n, what)
	value, err := strconv.Atoi(text)
	if ok && (err != nil || value < 0) {
		r.Fail(n, "", "%s is a whole number, 0 or more", what)
	}
	return value
}

// Where people put a secret by mistake: any line but those of fields that nobody takes for one's place.
var (
	harmless = regexp.MustCompile(`^[\s{-]*(name|on|to|rules|wait|every|rate|resolved|title|text|keys|timeout|max_age|poll|hits|lag|enforcers|aggregators|above|below|for|repeat|keep)\s*:`)
	telling  = regexp.MustCompile(`(?i)://|secret|password|token|url|` + strings.Join(receive.Names(), "|"))
	quoted   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

// masked takes out of errors what may be a secret: they go to the log.
func masked(err error) error {
	list, ok := errors.AsType[document.Errors](err)
	if !ok {
		return err
	}
	for _, e := range list {
		if !harmless.MatchString(e.SourceLine) || telling.MatchString(e.SourceLine) {
			e.SourceLine = ""
			e.Message = quoted.ReplaceAllStringFunc(e.Message, func(text string) string {
				if isWord(strings.Trim(text, `"`)) {
					return text
				}
				return `"…"`
			})
		}
	}
	return list
}

// isWord reports whether a text is a field or a type of this language, and so no secret.
func isWord(text string) bool {
	for _, t := range receive.Types {
		if t.Name == text || slices.ContainsFunc(t.Fields, func(f string) bool { return f == text || strings.Split(f, "_")[0] == text }) {
			return true
		}
	}
	if slices.Contains(words.Fields, text) || slices.Contains(kinds(), text) {
		return true
	}
	_, synonym := words.Synonyms[text]
	return synonym
}
