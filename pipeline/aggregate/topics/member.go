package topics

import "strings"

// Member is what the group's members tell each other in their user data.
type Member struct {
	Advertise string // host:port of its HTTP API
	Rules     string // the hash of the rule set that it counts by, in hexadecimal
}

// UserData is m as a member of the group sends it.
func (m Member) UserData() []byte { return []byte(m.Advertise + "\x00" + m.Rules) }

// ParseMember is UserData's inverse. What is not there is empty.
func ParseMember(userData []byte) Member {
	advertise, rules, _ := strings.Cut(string(userData), "\x00")
	return Member{advertise, rules}
}
