package keyref

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/tallygate/tallygate/event"
)

const (
	passBytes = 4 + 16 // when it ends, and its tag
	maxPasses = 24     // of one reader: the latest

	// ShownFor is the time for which a key stays unmasked to whoever has searched for it.
	ShownFor = 30 * time.Minute
)

// Show returns a cookie's value in place of an earlier one: with it, the reader sees the key unmasked for a
// while. It names no key, and is worth nothing to another reader.
func (r *Refs) Show(cookie, who string, key []event.Dim, now time.Time) string {
	until := uint32(now.Add(ShownFor).Unix())
	passes := append(binary.BigEndian.AppendUint32(nil, until), r.passOf(until, who, key)...)
	for pass := range eachPass(cookie, now) {
		if len(passes) < maxPasses*passBytes && !hmac.Equal(pass[4:], r.passOf(binary.BigEndian.Uint32(pass), who, key)) {
			passes = append(passes, pass...)
		}
	}
	return base64.RawURLEncoding.EncodeToString(passes)
}

// Shown reports whether the reader with this cookie sees the key unmasked.
func (r *Refs) Shown(cookie, who string, key []event.Dim, now time.Time) bool {
	for pass := range eachPass(cookie, now) {
		if hmac.Equal(pass[4:], r.passOf(binary.BigEndian.Uint32(pass), who, key)) {
			return true
		}
	}
	return false
}

func (r *Refs) passOf(until uint32, who string, key []event.Dim) []byte {
	return keyed(r.pass, binary.BigEndian.AppendUint32(nil, until), []byte(who), event.AppendKey(nil, key))[:passBytes-4]
}

// eachPass yields the passes of a cookie that have not ended.
func eachPass(cookie string, now time.Time) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if len(cookie) > 2*maxPasses*passBytes {
			return
		}
		passes, err := base64.RawURLEncoding.DecodeString(cookie)
		if err != nil {
			return
		}
		for ; len(passes) >= passBytes; passes = passes[passBytes:] {
			if int64(binary.BigEndian.Uint32(passes)) > now.Unix() && !yield(passes[:passBytes]) {
				return
			}
		}
	}
}
