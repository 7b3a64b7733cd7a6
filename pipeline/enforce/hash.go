package enforce

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"

	"github.com/tallygate/tallygate/pipeline/event"
)

var (
	seed = maphash.MakeSeed()
	keys = [3]uint64{rand.Uint64() | 1, rand.Uint64() | 1, rand.Uint64() | 1}
)

// hashString hashes a value. Up to 16 bytes, as nearly all uids have, it is wyhash with random keys, as in Go's own maps where the
// processor has no AES, since maphash takes three calls to get to work; users who choose their names can find no collisions
// without the keys.
func hashString(s string) uint64 {
	hash, _, _ := hashWords(s)
	return hash
}

// hashWords is hashString. Up to 16 bytes it also returns two words that have all of them. From 8 bytes to 16 these are the first
// and the last eight: whoever compares them need call nothing for it.
func hashWords(s string) (hash, a, b uint64) {
	n := len(s)
	switch {
	case n > 16:
		return maphash.String(seed, s), 0, 0
	case n >= 8:
		a, b = load64(s, 0), load64(s, n-8)
	case n >= 4:
		a, b = load32(s, 0), load32(s, n-4)
	case n > 0:
		a = uint64(s[0])<<16 | uint64(s[n>>1])<<8 | uint64(s[n-1])
	}
	hi, lo := bits.Mul64(a^keys[0], b^keys[1])
	hi, lo = bits.Mul64(hi^lo^keys[2], keys[1]^uint64(n))
	return hi ^ lo, a, b
}

// notASCII are the bits of eight bytes that no ASCII character has.
const notASCII = 0x8080808080808080

// plain reports whether a uid is surely canonical, see event.CanonicalUID: nearly all are.
func plain(uid string) bool {
	if len(uid) > event.MaxUID {
		return false
	}
	var or uint64
	i := 0
	for ; i+8 <= len(uid); i += 8 {
		or |= load64(uid, i)
	}
	for ; i < len(uid); i++ {
		or |= uint64(uid[i])
	}
	return or&notASCII == 0
}

func load64[T string | []byte](s T, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32[T string | []byte](s T, i int) uint64 {
	s = s[i : i+4]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// mix adds a value's hash. For the first value of the shape uid, whose salt is 0, it changes nothing.
func mix(hash, with uint64) uint64 { return hash*0x9E3779B97F4A7C15 ^ with }
