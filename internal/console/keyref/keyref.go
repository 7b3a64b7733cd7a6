// Package keyref keeps users' data out of addresses and off the screen. A key is named in an address by a
// reference, which only the console can read, and shown masked until somebody searches for it by its exact
// value or asks to see it. The console keeps no state for this: references are made from the key and the
// console's secret, and what a reader may see is in the reader's cookie, sealed.
package keyref

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
)

// Config configures references.
type Config struct {
	// Secret is the console's key, of at least 16 bytes. All consoles of an installation need the same: then a
	// reference works at each, and equal values have equal masks.
	Secret []byte
	// Older are secrets from before: what was made with them is still read.
	Older [][]byte
	// Plain are dimensions beside api and all whose values are nobody's data, such as attrs.campaign: they are
	// never masked.
	Plain []string
}

// Refs makes and reads references. Many goroutines may use it.
type Refs struct {
	plain []string
	older []*Refs
	block cipher.Block // encrypts
	tag   []byte       // key of the tags, which are the IVs too
	mask  []byte       // key of masks
	pass  []byte       // key of what a reader may see
}

// minSecret is the least length of a secret, in bytes.
const minSecret = 16

// New derives the keys.
func New(c Config) (*Refs, error) {
	if len(c.Secret) < minSecret {
		return nil, fmt.Errorf("keyref: the secret has %d bytes, want at least %d", len(c.Secret), minSecret)
	}
	keys, err := hkdf.Key(sha256.New, c.Secret, nil, "tallygate console keyref", 4*sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("keyref: derive the keys: %w", err)
	}
	block, err := aes.NewCipher(keys[:sha256.Size])
	if err != nil {
		return nil, fmt.Errorf("keyref: %w", err)
	}
	r := &Refs{plain: slices.Clone(c.Plain), block: block, tag: keys[32:64], mask: keys[64:96], pass: keys[96:]}
	for _, secret := range c.Older {
		old, err := New(Config{Secret: secret})
		if err != nil {
			return nil, err
		}
		r.older = append(r.older, old)
	}
	return r, nil
}

// What is sealed is of one purpose: a cursor is not taken for a reference.
const keyPurpose = "key"

// Ref is the reference of a key: the same for the same key, with nothing of the key but about how long it is.
func (r *Refs) Ref(key []event.Dim) string {
	return r.Seal(keyPurpose, event.AppendKey(nil, key))
}

// ErrRef is the error of references that this console, or one with the same secret, has not made.
var ErrRef = errors.New("keyref: this reference is not of this console; has its secret changed?")

// Key is the key of a reference.
func (r *Refs) Key(ref string) ([]event.Dim, error) {
	text, err := r.Unseal(keyPurpose, ref)
	if err != nil {
		return nil, err
	}
	key, err := event.ParseKey(text)
	if err != nil {
		return nil, ErrRef
	}
	return key, nil
}

const (
	tagBytes = 16
	padTo    = 16      // lengths of sealed texts are multiples of this
	maxRef   = 3 << 15 // characters: the longest key's reference is shorter
)

// Seal encrypts text for addresses, deterministically, so that links stay the same. It is the construction of
// RFC 5297 (SIV) with HMAC-SHA-256: the tag of purpose and text is the IV of AES-CTR.
func (r *Refs) Seal(purpose string, text []byte) string {
	padded := append(slices.Clone(text), 0x80)
	padded = append(padded, make([]byte, (padTo-len(padded)%padTo)%padTo)...)
	tag := r.tagOf(purpose, padded)
	out := append(slices.Clone(tag), padded...)
	cipher.NewCTR(r.block, tag).XORKeyStream(out[tagBytes:], padded)
	return base64.RawURLEncoding.EncodeToString(out)
}

// Unseal is the inverse of Seal. It returns ErrRef for whatever Seal did not make for this purpose.
func (r *Refs) Unseal(purpose, ref string) ([]byte, error) {
	text, err := r.unseal(purpose, ref)
	for _, old := range r.older {
		if err == nil {
			break
		}
		text, err = old.unseal(purpose, ref)
	}
	return text, err
}

func (r *Refs) unseal(purpose, ref string) ([]byte, error) {
	if len(ref) > maxRef {
		return nil, ErrRef
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(ref)
	if err != nil || len(sealed) < tagBytes+padTo || (len(sealed)-tagBytes)%padTo != 0 {
		return nil, ErrRef
	}
	tag, padded := sealed[:tagBytes], make([]byte, len(sealed)-tagBytes)
	cipher.NewCTR(r.block, tag).XORKeyStream(padded, sealed[tagBytes:])
	if !hmac.Equal(tag, r.tagOf(purpose, padded)) {
		return nil, ErrRef
	}
	text := bytes.TrimRight(padded, "\x00")
	if len(text) == 0 || text[len(text)-1] != 0x80 {
		return nil, ErrRef
	}
	return text[:len(text)-1], nil
}

func (r *Refs) tagOf(purpose string, text []byte) []byte {
	return keyed(r.tag, []byte(purpose), text)[:tagBytes]
}

// keyed is the HMAC of parts, each with its length.
func keyed(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// Personal reports whether the values of a dimension may be a user's data: all but those of api and all, and
// those that the operator named.
func (r *Refs) Personal(dim string) bool {
	return dim != "api" && dim != "all" && !slices.Contains(r.plain, dim)
}

// HasPersonal reports whether a key has a dimension with personal data.
func (r *Refs) HasPersonal(key []event.Dim) bool {
	return slices.ContainsFunc(key, func(d event.Dim) bool { return r.Personal(d.Name) })
}

// maskLetters is the number of characters that tell values apart: 20 bits.
const maskLetters = 4

// MaskValue hides a dimension's value. What it shows is the same for equal values, and has nothing of them.
func (r *Refs) MaskValue(dim, value string) string {
	sum := keyed(r.mask, []byte(dim), []byte(value))
	return "•••" + strings.ToLower(base32.StdEncoding.EncodeToString(sum)[:maskLetters])
}

// Mask writes a key as people read it, with its personal values hidden: api=login uid=•••k3fa. Those that are in
// known are not.
func (r *Refs) Mask(key []event.Dim, known ...event.Dim) string {
	var parts []string
	key = slices.Clone(key)
	slices.SortFunc(key, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range key {
		if !r.Personal(d.Name) || slices.Contains(known, d) {
			parts = append(parts, keytext.Format([]event.Dim{d}))
			continue
		}
		name, _, _ := strings.Cut(keytext.Format([]event.Dim{{Name: d.Name, Value: "x"}}), "=")
		parts = append(parts, name+"="+r.MaskValue(d.Name, d.Value))
	}
	return strings.Join(parts, " ")
}
