package session

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// sealer encrypts what browsers keep for the console, so that they can neither read nor change it.
// Its keys follow their file.
type sealer struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	keys   []cipher.AEAD // the first one seals, all of them open
	text   []byte        // of the file; nil while it cannot be read
	looked time.Time
}

const (
	minSecret = 32          // bytes of a line
	lookEvery = time.Second // how often the file is looked at
)

// newSealer reads the file; "" makes a random key.
func newSealer(path string, log *slog.Logger) (*sealer, error) {
	s := &sealer{path: path, log: log}
	if path == "" {
		key, err := aead([]byte(rand.Text() + rand.Text()))
		if err != nil {
			return nil, err
		}
		s.keys = []cipher.AEAD{key}
		log.Info("sessions are sealed with a random key: they end with this process, and no other console knows them; --session-key-file keeps them")
		return s, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read --session-key-file: %w", err)
	}
	if s.keys, err = parseKeys(text); err != nil {
		return nil, fmt.Errorf("read --session-key-file %s: %w", path, err)
	}
	s.text, s.looked = text, time.Now()
	return s, nil
}

// parseKeys reads one secret a line. No error tells what is in a line.
func parseKeys(text []byte) ([]cipher.AEAD, error) {
	var keys []cipher.AEAD
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		secret := bytes.TrimSpace(lines.Bytes())
		if len(secret) == 0 {
			continue
		}
		if len(secret) < minSecret {
			return nil, fmt.Errorf("line %d has fewer than %d characters; `openssl rand -hex 32` prints a key", n, minSecret)
		}
		key, err := aead(secret)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key; `openssl rand -hex 32` prints one")
	}
	return keys, nil
}

func aead(secret []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "tallygate console cookies 1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// current are the keys of the file as it is now. While it is wrong or away, they are those that it had.
func (s *sealer) current() []cipher.AEAD {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.path != "" && now.Sub(s.looked) >= lookEvery {
		s.looked = now
		text, err := os.ReadFile(s.path)
		if bytes.Equal(text, s.text) { // also when it cannot be read again
			return s.keys
		}
		s.text = text
		keys := s.keys
		if err == nil {
			keys, err = parseKeys(text)
		}
		if err != nil {
			s.log.Error("the --session-key-file changed and is invalid; keeping the old keys", "error", err)
		} else {
			s.keys = keys
			s.log.Info("the --session-key-file was reloaded", "keys", len(keys))
		}
	}
	return s.keys
}

// close seals a text for a purpose, for which alone it can be opened.
func (s *sealer) close(purpose string, text []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.current()[0].Seal(nil, nil, text, []byte(purpose)))
}

// open decrypts a sealed text, with whichever key.
func (s *sealer) open(purpose, sealed string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil, errNoSession
	}
	for _, key := range s.current() {
		if text, err := key.Open(nil, nil, raw, []byte(purpose)); err == nil {
			return text, nil
		}
	}
	return nil, errNoSession
}
