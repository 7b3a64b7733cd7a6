package topics

import "strings"

// Member is what the group's members tell each other in their user data.
type Member struct {
	Advertise string // host:port of its HTTP API
	Rules     string // the hash of the rule set that it counts by, in hexadecimal
	TLS       bool   // its HTTP API speaks TLS
	Key       string // the public key by which it signs what it passes on to others; "" from older versions
}

const tlsWord = "tls"

// UserData is m as a member of the group sends it: its fields, separated by NULs. Older versions know the first
// two, and take all behind the first NUL for the second.
func (m Member) UserData() []byte {
	text := m.Advertise + "\x00" + m.Rules
	if m.TLS || m.Key != "" {
		word := ""
		if m.TLS {
			word = tlsWord
		}
		text += "\x00" + word + "\x00" + m.Key
	}
	return []byte(text)
}

// ParseMember is UserData's inverse. What is not there is empty, and what a newer version adds is left out.
func ParseMember(userData []byte) Member {
	fields := append(strings.Split(string(userData), "\x00"), "", "", "")
	return Member{Advertise: fields[0], Rules: fields[1], TLS: fields[2] == tlsWord, Key: fields[3]}
}
