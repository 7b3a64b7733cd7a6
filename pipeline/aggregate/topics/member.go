package topics

import "strings"

// Member is what the group's members tell each other in their user data.
type Member struct {
	Advertise string // host:port of its HTTP API
	Rules     string // the hash of its rule set, in hexadecimal
	TLS       bool   // its HTTP API speaks TLS
	Key       string // the public key of its signatures; "" from older versions
	Packs     bool   // it reads packs of forwarded events; false from older versions
}

const (
	tlsWord   = "tls"
	packsWord = "packs"
)

// UserData encodes m: its fields, separated by NULs. Older versions know the first two fields, and
// take everything after the first NUL for the second.
func (m Member) UserData() []byte {
	text := m.Advertise + "\x00" + m.Rules
	var words [3]string
	if m.TLS {
		words[0] = tlsWord
	}
	words[1] = m.Key
	if m.Packs {
		words[2] = packsWord
	}
	if last := strings.TrimRight(strings.Join(words[:], "\x00"), "\x00"); last != "" {
		text += "\x00" + last
	}
	return []byte(text)
}

// ParseMember is UserData's inverse. Missing fields are empty, and fields of newer versions are
// ignored.
func ParseMember(userData []byte) Member {
	fields := append(strings.Split(string(userData), "\x00"), "", "", "", "")
	return Member{Advertise: fields[0], Rules: fields[1], TLS: fields[2] == tlsWord, Key: fields[3], Packs: fields[4] == packsWord}
}
