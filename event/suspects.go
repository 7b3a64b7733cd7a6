package event

import "maps"

// Suspects count events that are valid, and look like a mistake of who made them: a rule would miss them,
// and nothing would say so.
type Suspects struct {
	UIDName  uint64 // no uid, and a field of another name for it, such as user or userId
	TimeName uint64 // no time, and a field of another name for it, such as timestamp or ts
	IPName   uint64 // no ip, and a field of another name for it, such as client_ip or remote_addr
	IPForm   uint64 // an ip that is no address: a list, an array, a host's name
	Time1970 uint64 // a time in 1970: milliseconds where microseconds are meant; or one in seconds, which are read as such

	// TimeAhead is a time of more than a day after the broker's. A Decoder does not know that: see
	// TooFarAhead.
	TimeAhead uint64
}

// The reasons why an event is suspect: they label metrics.
const (
	SuspectUIDName   = "uid_name"
	SuspectTimeName  = "time_name"
	SuspectIPName    = "ip_name"
	SuspectIPForm    = "ip_form"
	SuspectTime1970  = "time_1970"
	SuspectTimeAhead = "time_ahead"
)

// SuspectReasons are all of them.
var SuspectReasons = []string{SuspectUIDName, SuspectTimeName, SuspectIPName, SuspectIPForm, SuspectTime1970, SuspectTimeAhead}

// SuspectAdvice says in words what a reason is, and what to do.
func SuspectAdvice(reason string) string {
	switch reason {
	case SuspectUIDName:
		return "events have no uid, and a field such as user, userId or user_id instead: name it uid, or no rule by uid counts them"
	case SuspectTimeName:
		return "events have no time, and a field such as timestamp or ts instead: name it time, or they count when they arrive"
	case SuspectIPName:
		return "events have no ip, and a field such as client_ip or remote_addr instead: name it ip, or no rule by address counts them"
	case SuspectIPForm:
		return "events have an ip that is no address, and count without one: send the client's address alone, not a list such as X-Forwarded-For, an array or a host's name"
	case SuspectTime1970:
		return "events have a time in seconds, which counts as such, or one in 1970, which is too old to count: as a number time is in milliseconds, and in Go event.FromTime makes it"
	case SuspectTimeAhead:
		return "events have a time of more than a day ahead: look at their producer's clock, and its unit: as a number time is in milliseconds"
	}
	return ""
}

// Plus returns the sum.
func (s Suspects) Plus(o Suspects) Suspects {
	return Suspects{
		s.UIDName + o.UIDName, s.TimeName + o.TimeName, s.IPName + o.IPName, s.IPForm + o.IPForm,
		s.Time1970 + o.Time1970, s.TimeAhead + o.TimeAhead,
	}
}

// Minus returns what s has more than an earlier count.
func (s Suspects) Minus(o Suspects) Suspects {
	return Suspects{
		s.UIDName - o.UIDName, s.TimeName - o.TimeName, s.IPName - o.IPName, s.IPForm - o.IPForm,
		s.Time1970 - o.Time1970, s.TimeAhead - o.TimeAhead,
	}
}

// ByReason returns the numbers that are not 0.
func (s Suspects) ByReason() map[string]uint64 {
	all := map[string]uint64{
		SuspectUIDName: s.UIDName, SuspectTimeName: s.TimeName, SuspectIPName: s.IPName, SuspectIPForm: s.IPForm,
		SuspectTime1970: s.Time1970, SuspectTimeAhead: s.TimeAhead,
	}
	maps.DeleteFunc(all, func(_ string, n uint64) bool { return n == 0 })
	return all
}

// In1970 reports whether a time is suspect: in the first year of Unix time, where numbers of another unit
// come to lie.
func In1970(t Micros) bool { return t > 0 && t < 365*Day }

// TooFarAhead reports whether an event's time is suspect beside that of its broker.
func TooFarAhead(t, broker Micros) bool {
	return t != NoTime && broker != NoTime && t > broker+Day
}

// otherName is a field that an unknown one may be meant for.
type otherName uint8

const (
	forUID otherName = 1 << iota
	forTime
	inSeconds // the time is a number of seconds
	forIP
)

// longestOther is more than any name that means something has, however it is written.
const longestOther = 16

// otherNameOf looks at the name of a field that is not read: userId, user_id and @timestamp are ways to
// write one.
func otherNameOf(name string) otherName {
	if len(name) > longestOther {
		return 0
	}
	plain := make([]byte, 0, longestOther)
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'A' && c <= 'Z':
			plain = append(plain, c+('a'-'A'))
		case c != '_' && c != '-' && c != '@':
			plain = append(plain, c)
		}
	}
	switch string(plain) {
	case "user", "userid", "uid", "username", "sub", "subject", "principal", "login", "account", "accountid", "customer", "customerid":
		return forUID
	case "timestamp", "ts", "time", "datetime", "date", "eventtime", "occurredat", "createdat":
		return forTime
	case "ip", "ipaddr", "ipaddress", "clientip", "clientaddr", "remoteaddr", "remoteip", "sourceip", "xforwardedfor":
		return forIP
	}
	return 0
}

// look looks at a valid event, at what fields that are not read may be meant for, and at whether its ip was dropped.
func (s *Suspects) look(e *Event, other otherName, dropped bool) {
	if other&forUID != 0 && e.UID == "" {
		s.UIDName++
	}
	if other&forTime != 0 && e.Time == NoTime {
		s.TimeName++
	}
	if dropped {
		s.IPForm++
	} else if other&forIP != 0 && !e.IP.IsValid() {
		s.IPName++
	}
	if In1970(e.Time) || other&inSeconds != 0 {
		s.Time1970++
	}
}
