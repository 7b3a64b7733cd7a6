package accesslog

import (
	"cmp"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// What may be wrong with a line.
var (
	errClient  = errors.New("expected a client, an ident and a user, then [time]")
	errAddress = errors.New("expected the client's address in front: what is there is none (host names: HostnameLookups Off)")
	errProxies = errors.New("each address in front is one of --trusted-proxies, so none is the client's")
	errVhost   = errors.New("expected a virtual host before the client's address")
	errTime    = errors.New("expected a time such as [17/May/2015:10:05:03 +0000] behind the user")
	errRequest = errors.New(`expected "METHOD path protocol" in double quotes`)
	errStatus  = errors.New("expected a status of three digits behind the request")
	errBytes   = errors.New("expected a number of bytes, or -, behind the status")
	errFields  = errors.New(`expected "referer" "agent" behind the bytes, or the line's end`)
)

const (
	maxAgent = 256
	logTime  = "02/Jan/2006:15:04:05 -0700"
)

// parser takes log lines apart. What it returns holds until it is used again.
type parser struct {
	attrs    [3]event.Attr
	proxies  *httplimit.Proxies // nil: none
	suspects event.Suspects
}

// record is one line, taken apart.
type record struct {
	client, user   string
	time           event.Micros
	method, target string
	status, bytes  string
	agent          string
}

// parse turns a line of the combined or common format into an event without id.
func (p *parser) parse(line []byte, format Format) (event.Event, error) {
	r, err := split(string(line), format)
	if err != nil {
		return event.Event{}, err
	}
	ip, err := p.address(r.client)
	if errors.Is(err, errAddress) || err != nil && r.user == "" {
		return event.Event{}, err
	}
	status, _ := strconv.Atoi(r.status) // it is three digits
	e := event.Event{
		UID: event.CanonicalUID(r.user), API: httplimit.PathAPI(r.method, r.target), Outcome: event.StatusOutcome(status),
		Time: r.time, BrokerTime: event.NoTime, Cost: event.One, IP: ip,
	}
	if e.UID == "" {
		e.UID = ip.String()
	}
	attrs := append(p.attrs[:0],
		event.Attr{Name: "bytes", Value: event.Value{Kind: event.Number, Text: r.bytes}},
		event.Attr{Name: "status", Value: event.Value{Kind: event.Number, Text: r.status}})
	if r.agent != "" {
		attrs = append(attrs, event.Attr{Name: "agent", Value: event.StringValue(cut(r.agent, maxAgent))})
	}
	e.Attrs = attrs
	return e, nil
}

// address is the client's, of one address or a list of them as X-Forwarded-For has it: the last that is
// no trusted proxy's. Left of it stand a client's own claims, whatever they are.
func (p *parser) address(list string) (netip.Addr, error) {
	hops := strings.Split(list, ",")
	ip, ok := event.ParseAddress(cmp.Or(p.proxies, noProxies).Client(hops))
	if ok {
		return ip, nil
	}
	for _, hop := range hops {
		if _, ok := event.ParseAddress(strings.TrimSpace(hop)); !ok {
			p.suspects.IPForm++
			return netip.Addr{}, errAddress
		}
	}
	return netip.Addr{}, errProxies
}

var noProxies = httplimit.NewProxies()

// clientOf is the client's address, or the list of addresses, in front of a line; vhost reports whether a
// virtual host stands before it, as in Apache's vhost_combined.
func clientOf(line string) (client string, vhost bool, rest string, ok bool) {
	first, rest, ok := addresses(line)
	second, behind, more := addresses(rest)
	if _, isAddress := event.ParseAddress(second); more && isAddress || strings.Contains(second, ",") {
		return second, true, behind, more
	}
	return first, false, rest, ok && first != ""
}

// addresses is the word in front, with those that follow a comma at its end.
func addresses(line string) (list, rest string, ok bool) {
	list, rest, ok = strings.Cut(line, " ")
	for ok && strings.HasSuffix(list, ",") {
		var next string
		next, rest, ok = strings.Cut(rest, " ")
		list += next
	}
	return list, rest, ok
}

func split(line string, format Format) (r record, err error) {
	client, vhost, rest, ok := clientOf(line)
	if !ok {
		return r, errClient
	}
	if format == VhostCombined {
		if !vhost {
			return r, errVhost
		}
		format = Combined
	} else if vhost && format != Auto {
		return r, errAddress
	}
	r.client = client
	if _, rest, ok = strings.Cut(rest, " "); !ok { // the ident tells nothing
		return r, errClient
	}
	if r.user, r.time, rest, err = userAndTime(rest); err != nil {
		return r, err
	}
	request, rest, ok := quoted(rest)
	if !ok {
		return r, errRequest
	}
	if r.method, r.target, ok = splitRequest(request); !ok {
		return r, errRequest
	}
	r.status, rest, _ = strings.Cut(rest, " ")
	if len(r.status) != 3 || !isDigits(r.status) || r.status[0] == '0' {
		return r, errStatus
	}
	r.bytes, rest, ok = strings.Cut(rest, " ")
	if r.bytes == "-" {
		r.bytes = "0"
	} else if !isDigits(r.bytes) || len(r.bytes) > 18 {
		return r, errBytes
	}
	r.bytes = shortest(r.bytes)
	if !ok && format != Combined {
		return r, nil
	}
	if format == Common {
		return r, errFields
	}
	return r, r.readCombined(rest)
}

// readCombined reads what the combined format has behind the common one. Servers are often told to
// log more behind that: it is ignored.
func (r *record) readCombined(rest string) error {
	_, rest, ok := quoted(rest)
	if !ok {
		return errFields
	}
	if r.agent, _, ok = quoted(rest); !ok {
		return errFields
	}
	if r.agent = valid(r.agent); r.agent == "-" {
		r.agent = ""
	}
	return nil
}

// userAndTime reads "user [time] ". Users may have blanks and brackets in their names.
func userAndTime(s string) (user string, t event.Micros, rest string, err error) {
	const size = len("[17/May/2015:10:05:03 +0000] ")
	for from := 0; ; {
		i := strings.Index(s[from:], " [")
		if i < 0 {
			return "", 0, "", errTime
		}
		i += from
		from = i + 1
		if len(s) < i+1+size || s[i+size-1] != ']' || s[i+size] != ' ' {
			continue
		}
		at, err := time.Parse(logTime, s[i+2:i+size-1])
		if err != nil {
			continue
		}
		if user = valid(unescape(s[:i])); user == "-" || user == `""` {
			user = ""
		}
		return user, event.FromTime(at), s[i+1+size:], nil
	}
}

// quoted reads a field in double quotes, and the blank behind it, if there is one.
func quoted(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			if rest = s[i+1:]; rest != "" && rest[0] != ' ' {
				return "", "", false
			}
			return unescape(s[1:i]), strings.TrimPrefix(rest, " "), true
		}
	}
	return "", "", false
}

// splitRequest reads "GET /path HTTP/1.1". Paths may have blanks, and HTTP/0.9 has no protocol.
func splitRequest(s string) (method, target string, ok bool) {
	method, target, ok = strings.Cut(s, " ")
	if i := strings.LastIndexByte(target, ' '); i >= 0 && strings.HasPrefix(target[i+1:], "HTTP/") {
		target = target[:i]
	}
	return method, target, ok && isMethod(method) && target != ""
}

// isMethod reports whether s is a method's name: letters, and '-' as in M-SEARCH. What port
// scanners and TLS clients send to a plain port is not.
func isMethod(s string) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; (c < 'a' || c > 'z') && (s[i] != '-' || i == 0) {
			return false
		}
	}
	return s != ""
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// cut shortens s to at most n bytes, at the end of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// unescape undoes what servers write for quotes, backslashes, controls and bytes outside
// ASCII: \" \\ \n \xE9. The result may be no UTF-8: the request's path was not, either.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'x':
			if i+2 < len(s) {
				if hi, lo := unhex(s[i+1]), unhex(s[i+2]); hi >= 0 && lo >= 0 {
					out = append(out, byte(hi<<4|lo))
					i += 2
					continue
				}
			}
			out = append(out, '\\', 'x')
		case '"', '\\':
			out = append(out, c)
		default:
			if k := strings.IndexByte("nrtbfv", c); k >= 0 {
				out = append(out, "\n\r\t\b\f\v"[k])
			} else {
				out = append(out, '\\', c)
			}
		}
	}
	return string(out)
}

// valid replaces what is no UTF-8 by U+FFFD.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func unhex(c byte) int {
	if c >= 'A' && c <= 'F' {
		c |= 0x20
	}
	return strings.IndexByte("0123456789abcdef", c)
}
