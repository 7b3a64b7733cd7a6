package topics

import (
	"strconv"
	"strings"
)

// Member is the user data by which the group's members know each other.
type Member struct {
	Advertise string // host:port of its HTTP API
	Rules     string // the hash of its rule set, in hexadecimal
	TLS       bool   // its HTTP API speaks TLS
	Key       string // the public key of its signatures; "" from older versions
	Packs     bool   // it reads packs of forwarded events; false from older versions

	// What must be the same for all members. Zero from older versions, which is no difference.
	Redis      string // WithoutRedis or WithRedis
	Shards     int    // of the blocklist; 0 without Redis
	BrokerTime string // append or create
}

// The values of Member.Redis.
const (
	WithoutRedis = "none"
	WithRedis    = "meets" // members with the same Redis meet there
)

const (
	tlsWord   = "tls"
	packsWord = "packs"
)

// UserData encodes m: its fields, separated by NULs. Older versions know the first two fields, and
// take everything after the first NUL for the second.
func (m Member) UserData() []byte {
	text := m.Advertise + "\x00" + m.Rules
	var words [4]string
	if m.TLS {
		words[0] = tlsWord
	}
	words[1] = m.Key
	if m.Packs {
		words[2] = packsWord
	}
	words[3] = m.shared()
	if last := strings.TrimRight(strings.Join(words[:], "\x00"), "\x00"); last != "" {
		text += "\x00" + last
	}
	return []byte(text)
}

// ParseMember is UserData's inverse. Missing fields are empty, and fields of newer versions are
// ignored.
func ParseMember(userData []byte) Member {
	fields := append(strings.Split(string(userData), "\x00"), "", "", "", "", "")
	m := Member{Advertise: fields[0], Rules: fields[1], TLS: fields[2] == tlsWord, Key: fields[3], Packs: fields[4] == packsWord}
	for setting := range strings.FieldsSeq(fields[5]) {
		switch name, value, _ := strings.Cut(setting, "="); name {
		case "redis":
			m.Redis = value
		case "shards":
			m.Shards, _ = strconv.Atoi(value)
		case "time":
			m.BrokerTime = value
		}
	}
	return m
}

// shared encodes what must be the same for all: NAME=VALUE, separated by blanks.
func (m Member) shared() string {
	var all []string
	if m.Redis != "" {
		all = append(all, "redis="+m.Redis)
	}
	if m.Shards != 0 {
		all = append(all, "shards="+strconv.Itoa(m.Shards))
	}
	if m.BrokerTime != "" {
		all = append(all, "time="+m.BrokerTime)
	}
	return strings.Join(all, " ")
}
