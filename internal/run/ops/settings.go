package ops

import (
	"cmp"
	"flag"
	"slices"
	"strings"
	"sync"

	"github.com/tallygate/tallygate/api"
)

// Where a setting's value is from.
const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromFile        = "file"
	fromDefault     = "default"
)

// masked replaces a secret.
const masked = "•••"

// settings remembers where options' values are from, and which secrets are in use. Secrets are read again while
// the program runs.
type settings struct {
	mu      sync.Mutex
	from    map[string]string // by option
	secrets map[string]string // where from, by name
	hidden  map[string]bool   // options whose values are secrets
}

func (s *settings) note(option, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from = map[string]string{}
	}
	s.from[option] = from
}

// secret notes that a secret is in use, by the name of its variable.
func (s *settings) secret(env, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets == nil {
		s.secrets = map[string]string{}
	}
	s.secrets[strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(env, EnvName("")), "_", "-"))] = from
}

// Hide makes Settings mask the value of an option, such as an address that whoever knows it may write to. Options
// whose names end in password, secret or token are masked without it, and so is what stands before an @ in an
// address.
func (o *Options) Hide(option string) {
	o.settings.mu.Lock()
	defer o.settings.mu.Unlock()
	if o.settings.hidden == nil {
		o.settings.hidden = map[string]bool{}
	}
	o.settings.hidden[option] = true
}

// Func is that of package flag, for an option whose value Settings can tell.
func (o *Options) Func(name, usage string, fn func(string) error) {
	o.Var(&funcOption{fn: fn}, name, usage)
}

type funcOption struct {
	text string
	fn   func(string) error
}

func (f *funcOption) String() string { return f.text }

func (f *funcOption) Set(text string) error {
	err := f.fn(text)
	if err == nil {
		f.text = text
	}
	return err
}

// Settings returns all options as the program uses them, in the order of names, and the secrets that it has,
// masked.
func (o *Options) Settings() []api.Setting {
	o.settings.mu.Lock()
	defer o.settings.mu.Unlock()
	all := []api.Setting{}
	o.VisitAll(func(f *flag.Flag) {
		value := f.Value.String()
		if value != "" && (o.settings.hidden[f.Name] || isSecret(f.Name)) {
			value = masked
		}
		all = append(all, api.Setting{Name: f.Name, Value: maskCredentials(value), From: cmp.Or(o.settings.from[f.Name], fromDefault)})
	})
	for name, from := range o.settings.secrets {
		all = append(all, api.Setting{Name: name, Value: masked, From: from})
	}
	slices.SortFunc(all, func(a, b api.Setting) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func isSecret(option string) bool {
	for _, end := range []string{"password", "secret", "token"} {
		if strings.HasSuffix(option, end) {
			return true
		}
	}
	return false
}

// maskCredentials masks all that stands before the last @ of a value that may have a user and a password there:
// somebody may have written them into an address, although secrets belong into files.
func maskCredentials(value string) string {
	at := strings.LastIndexByte(value, '@')
	if at < 0 || !strings.Contains(value[:at], ":") {
		return value
	}
	scheme, _, ok := strings.Cut(value[:at], "://")
	if ok && !strings.ContainsAny(scheme, ":@") {
		return scheme + "://" + masked + value[at:]
	}
	return masked + value[at:]
}
