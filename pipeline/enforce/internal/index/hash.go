package index

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
)

var (
	seed = maphash.MakeSeed()
	keys = [3]uint64{rand.Uint64() | 1, rand.Uint64() | 1, rand.Uint64() | 1}
)

// User is a uid as a check looks for it. Make it with UserOf.
type User struct {
	hash uint64
	// Up to 16 bytes all of them are in these two. From 8 bytes to 16 they are the first and the
	// last eight: whoever compares them need call nothing for it.
	first, last uint64
}

// UserOf hashes a uid. Up to 16 bytes, as nearly all have, it is wyhash with random keys: what Go's
// own maps use where the processor has no AES. maphash needs three calls before it starts. Users
// who choose their names find no collisions without the keys.
func UserOf(uid string) (u User) {
	n := len(uid)
	switch {
	case n > 16:
		return User{hash: maphash.String(seed, uid)}
	case n >= 8:
		u.first, u.last = load64(uid, 0), load64(uid, n-8)
	case n >= 4:
		u.first, u.last = load32(uid, 0), load32(uid, n-4)
	case n > 0:
		u.first = uint64(uid[0])<<16 | uint64(uid[n>>1])<<8 | uint64(uid[n-1])
	}
	hi, lo := bits.Mul64(u.first^keys[0], u.last^keys[1])
	hi, lo = bits.Mul64(hi^lo^keys[2], keys[1]^uint64(n))
	u.hash = hi ^ lo
	return u
}

// Plain reports whether the uid is surely canonical, see event.CanonicalUID, and not long: nearly
// all are so.
func (u User) Plain(uid string) bool {
	return (u.first|u.last)&notASCII == 0 && (len(uid) <= 16 || plain(uid))
}

// hashString hashes any value.
func hashString(s string) uint64 { return UserOf(s).hash }

// notASCII are the bits of eight bytes that no ASCII character has.
const notASCII = 0x8080808080808080

// plain reports whether a uid is ASCII, and its length fits into a byte.
func plain(uid string) bool {
	if len(uid) > 255 {
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

func load64(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string, i int) uint64 {
	s = s[i : i+4]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// mix adds a value's hash. For the first value of the shape uid, whose salt is 0, it changes
// nothing.
func mix(hash, with uint64) uint64 { return hash*0x9E3779B97F4A7C15 ^ with }
