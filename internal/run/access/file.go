package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
)

// entry is one of the file's, which is a list of them in YAML or JSON.
type entry struct {
	Name        string `yaml:"name"`
	Role        string `yaml:"role"`
	SHA256      string `yaml:"sha256"`      // of the token, in hexadecimal
	Certificate string `yaml:"certificate"` // a client certificate's common name, or one of its alternative names
	Group       string `yaml:"group"`       // of the issuer's; the token's own name is in the audit
}

// credential is an entry that was checked.
type credential struct {
	Identity
	hash        []byte // nil: no token
	certificate string // "": none
	group       string // "": none
}

// credentials are the whole file.
type credentials []credential

// quoted matches the parser's quotes of a file's values: one that is out of place may be a token.
var quoted = regexp.MustCompile("`[^`]*`")

// parse reads a file, and returns every mistake in it.
func parse(src []byte) (credentials, error) {
	var list []entry
	d := yaml.NewDecoder(bytes.NewReader(src))
	d.KnownFields(true)
	if err := d.Decode(&list); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty; a list without entries is []")
	} else if err != nil {
		return nil, errors.New(quoted.ReplaceAllString(err.Error(), "…"))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document, or does not end as YAML; put all entries into one list")
	}
	var out credentials
	var errs []error
	for i, e := range list {
		c, err := e.check()
		switch {
		case err != nil:
		case slices.ContainsFunc(out, func(o credential) bool { return c.hash != nil && bytes.Equal(o.hash, c.hash) }):
			err = errors.New("another entry has the same sha256")
		case slices.ContainsFunc(out, func(o credential) bool { return c.certificate != "" && o.certificate == c.certificate }):
			err = errors.New("another entry has the same certificate")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d (%s): %w", i+1, e.Name, err))
		}
		out = append(out, c)
	}
	return out, errors.Join(errs...)
}

func (e *entry) check() (credential, error) {
	role, known := ParseRole(e.Role)
	c := credential{Identity: Identity{Name: e.Name, Role: role}, certificate: e.Certificate, group: e.Group}
	var errs []error
	if e.Name == "" || len(e.Name) > 256 {
		errs = append(errs, errors.New("it needs a name of up to 256 bytes, for the audit"))
	}
	if !known {
		errs = append(errs, fmt.Errorf("role %q: viewer, operator, admin or service", e.Role))
	}
	if e.SHA256 == "" && e.Certificate == "" && e.Group == "" {
		errs = append(errs, errors.New("it needs a token's sha256 or a certificate's name, or an issuer's group"))
	}
	if e.SHA256 != "" {
		hash, err := hex.DecodeString(e.SHA256)
		nothing := sha256.Sum256(nil)
		switch {
		case err != nil || len(hash) != sha256.Size: // what is there may be a token: it is not told
			errs = append(errs, errors.New("its sha256 is not the 64 hexadecimal digits that `printf %s \"$TOKEN\" | sha256sum` prints"))
		case bytes.Equal(hash, nothing[:]):
			errs = append(errs, errors.New("its sha256 is that of an empty token"))
		}
		c.hash = hash
	}
	return c, errors.Join(errs...)
}

// byHash looks at all, so that the time it takes tells nothing.
func (cs credentials) byHash(hash [sha256.Size]byte) (id Identity, ok bool) {
	for _, c := range cs {
		if len(c.hash) == len(hash) && subtle.ConstantTimeCompare(c.hash, hash[:]) == 1 {
			id, ok = c.Identity, true
		}
	}
	return id, ok
}

func (cs credentials) byName(names []string) (Identity, bool) {
	for _, c := range cs {
		if c.certificate != "" && slices.Contains(names, c.certificate) {
			return c.Identity, true
		}
	}
	return Identity{}, false
}

// byGroups is the highest role of the groups, or None. Service is below the others: who is in another
// group, too, wants to read.
func (cs credentials) byGroups(groups []string) Role {
	best := None
	for _, c := range cs {
		if c.group != "" && slices.Contains(groups, c.group) && rank(c.Role) > rank(best) {
			best = c.Role
		}
	}
	return best
}

func rank(r Role) int {
	return slices.Index([]Role{None, Service, Viewer, Operator, Admin}, r)
}

// namesOf are a certificate's names: the common one first, then the alternative ones.
func namesOf(cert *x509.Certificate) []string {
	var names []string
	if cert.Subject.CommonName != "" {
		names = append(names, cert.Subject.CommonName)
	}
	names = append(names, cert.DNSNames...)
	names = append(names, cert.EmailAddresses...)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// file is credentials that follow their file.
type file struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	is    os.FileInfo // the file, when it was last looked at; nil: it was away
	at    time.Time   // when that was
	text  []byte      // what was in it
	known credentials
}

// clockGrain is the interval after which two changes surely have different times. Within it a file
// system may keep the same time for both, and all files of one token have the same size.
const clockGrain = 2 * time.Second

func openFile(path string, log *slog.Logger) (*file, error) {
	f := &file{path: path, log: log}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// errSame is read's error for a file that has what it had.
var errSame = errors.New("it is the same")

func (f *file) read() error {
	info, err := os.Stat(f.path)
	if err != nil {
		f.is = nil
		return fmt.Errorf("read --tokens: %w", err)
	}
	f.is, f.at = info, time.Now()
	src, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("read --tokens: %w", err)
	}
	if f.text != nil && bytes.Equal(src, f.text) {
		return errSame
	}
	f.text = src
	known, err := parse(src)
	if err != nil {
		return fmt.Errorf("read --tokens %s: %w", f.path, err)
	}
	f.known = known
	return nil
}

// current returns the file's present contents: a credential that was removed is refused from the
// next request on. A missing or invalid file changes nothing, and is logged once.
func (f *file) current() credentials {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil && f.is == nil || err == nil && f.is != nil && sameFile(info, f.is) && f.at.Sub(info.ModTime()).Abs() > clockGrain {
		return f.known
	}
	if err := f.read(); errors.Is(err, errSame) {
		return f.known
	} else if err != nil {
		f.log.Error("the --tokens file changed and is invalid; keeping the old credentials", "error", err)
	} else {
		f.log.Info("the --tokens file was reloaded", "credentials", len(f.known))
	}
	return f.known
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
