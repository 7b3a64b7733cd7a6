package event

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

type field uint8

const (
	fieldNone field = iota
	fieldID
	fieldTime
	fieldUID
	fieldAPI
	fieldOutcome
	fieldCost
	fieldRefunds
	fieldIP
	fieldAttrs
	fieldAttrCount
	fieldBrokerTime
	fieldPermit
	fieldPermitAt
)

// mistake is a field's first mistake. It is kept until the object ends, because a field of the same name may follow,
// and the last one counts.
type mistake struct {
	field  field
	attr   string
	reason string
	at     int
	why    string
}

func (m *mistake) bad(index int, raw []byte) BadEvent {
	return BadEvent{Index: index, Reason: m.reason, Offset: m.at, Raw: raw,
		Err: fmt.Errorf("%s: at byte %d: %s", m.reason, m.at, m.why)}
}

// mistakes are those of an event.
type mistakes struct{ wrong []mistake }

// mistake notes what is wrong with a field whose earlier mistake was forgiven. So there is one a
// field and an attribute at most, and a look through them takes the same time however long the
// event is.
func (d *mistakes) mistake(f field, attr, reason string, at int, why string) {
	d.wrong = append(d.wrong, mistake{f, attr, reason, at, why})
}

// tooLarge reports whether what was read of the current element is more than an event may have: it
// is not one, and what is in the rest of it does not matter.
func (d *Decoder) tooLarge() bool { return d.scan.i-d.start > MaxBytes }

func (d *mistakes) failed(f field) bool {
	return slices.ContainsFunc(d.wrong, func(m mistake) bool { return m.field == f })
}

func (d *mistakes) forgive(f field) {
	if len(d.wrong) > 0 {
		d.wrong = slices.DeleteFunc(d.wrong, func(m mistake) bool { return m.field == f })
	}
}

// object reads an event's fields from the object that is next.
func (d *Decoder) object() bool {
	p := &d.scan
	var t token
	more, ok := p.open('}')
	for k := 0; more && ok; k++ {
		name, known, named := d.fields.name(p, k)
		switch {
		case !named:
			return false
		case d.tooLarge():
			ok = p.value(&t)
		case known.field == fieldAttrs:
			ok = d.readAttrs()
		case known.field == fieldPermitAt:
			ok = d.event.Permit.read(d)
		default:
			if ok = p.value(&t); ok {
				d.set(known.field, name, &t)
			}
		}
		if ok {
			more, ok = p.next('}')
		}
	}
	return ok
}

// fieldOf is the field of an event that a name stands for; fieldNone when there is none.
func fieldOf(name string) field {
	switch name {
	case "id":
		return fieldID
	case "time":
		return fieldTime
	case "uid":
		return fieldUID
	case "api":
		return fieldAPI
	case "outcome":
		return fieldOutcome
	case "cost":
		return fieldCost
	case "refunds":
		return fieldRefunds
	case "ip":
		return fieldIP
	case "attrs":
		return fieldAttrs
	case "broker_time":
		return fieldBrokerTime
	case "permit":
		return fieldPermit
	case "permit_at":
		return fieldPermitAt
	}
	return fieldNone
}

// set gives a field of the event its value; a later one of the same name replaces it. The name is that of
// no field when f is fieldNone.
func (d *Decoder) set(f field, name string, t *token) {
	e := d.event
	switch f {
	case fieldID:
		e.ID = t.id(d.name(f, ReasonID, t))
	case fieldTime:
		e.Time = d.moment(f, t)
		if d.other &^= inSeconds; t.seconds() {
			d.other |= inSeconds
		}
	case fieldBrokerTime:
		e.BrokerTime = d.moment(f, t)
	case fieldUID:
		d.setUID(t)
	case fieldAPI:
		d.setAPI(t)
	case fieldOutcome:
		if e.Outcome = d.text(f, ReasonOutcome, t); !t.isShort() {
			e.Outcome = CanonicalText(e.Outcome)
		}
	case fieldCost:
		d.setCost(t)
	case fieldRefunds:
		e.Refunds = t.id(d.name(f, ReasonRefunds, t))
	case fieldIP:
		d.setIP(t)
	case fieldPermit:
		e.Permit.ID = t.id(d.text(f, ReasonPermit, t))
	default:
		if t.kind == tokString || t.kind == tokNumber {
			d.other |= otherNameOf(name)
		}
		if d.Unread != nil {
			d.Unread(name)
		}
	}
}

// isShort reports whether a string's text is its canonical one, whatever it is of.
func (t *token) isShort() bool { return t.plain && len(t.text) <= surelyShort }

// surelyShort is at most what each bound of a text lets pass without a look at its bytes.
const surelyShort = min(MaxID, MaxUID, MaxText/escaped)

// id is the canonical form of an id that a token has.
func (t *token) id(text string) string {
	if t.isShort() {
		return text
	}
	return canonicalID(text)
}

// text reads a string.
func (d *Decoder) text(f field, reason string, t *token) string {
	d.forgive(f)
	if t.kind == tokNull {
		return ""
	}
	if t.kind != tokString {
		d.mistake(f, "", reason, t.at, "expected a string")
		return ""
	}
	return t.text
}

// setUID takes any text: in keys it is percent-encoded, so that no character can do harm.
func (d *Decoder) setUID(t *token) {
	if t.kind == tokString && t.isShort() {
		d.forgive(fieldUID)
		d.event.UID = t.text
		return
	}
	d.event.UID = CanonicalUID(d.name(fieldUID, ReasonUID, t))
}

// name reads what names something: a string, or an integer as its digits, however many there are. Databases
// number users and orders.
func (d *Decoder) name(f field, reason string, t *token) string {
	if t.kind != tokNumber {
		return d.text(f, reason, t)
	}
	d.forgive(f)
	d.lately = d.lately || f != fieldUID
	text := t.text
	if text == "-0" {
		text = "0"
	}
	if unsigned := strings.TrimPrefix(text, "-"); digits(unsigned) != len(unsigned) {
		d.mistake(f, "", reason, t.at, "a number with a fraction or an exponent is no "+nameOf[f]+": write an integer or a string")
		return ""
	}
	return text
}

// nameOf names the fields that identify something, for messages.
var nameOf = map[field]string{fieldUID: "uid", fieldID: "id", fieldRefunds: "id of an event"}

// setAPI refuses control characters: the name is shown to people and stands in their rules.
func (d *Decoder) setAPI(t *token) {
	api := d.text(fieldAPI, ReasonAPI, t)
	if d.event.API = api; len(api) > MaxAPI {
		d.event.API = ""
		d.mistake(fieldAPI, "", ReasonAPI, t.at, fmt.Sprintf("%d bytes, at most %d are allowed", len(api), MaxAPI))
		return
	}
	for i := range len(api) {
		if api[i] < ' ' || api[i] == 0x7f {
			d.event.API = ""
			d.mistake(fieldAPI, "", ReasonAPI, t.at, "a control character: name the action in plain text, such as order.create")
			return
		}
	}
}

func (d *Decoder) setCost(t *token) {
	d.forgive(fieldCost)
	d.event.Cost = One
	if t.kind == tokNull {
		return
	}
	if t.kind == tokNumber {
		n, _ := splitNumber(t.text)
		c, exact := n.decimal()
		if !exact {
			c, exact = n.rounded()
		}
		if exact {
			d.event.Cost = c
			return
		}
	}
	d.mistake(fieldCost, "", ReasonCost, t.at, "expected a number of at most 6 fraction digits, within ±"+MaxDecimal.String())
}

// moment reads what momentOf does.
func (d *Decoder) moment(f field, t *token) Micros {
	d.forgive(f)
	d.lately = d.lately || t.seconds()
	m, ok := momentOf(t)
	if !ok {
		d.mistake(f, "", ReasonTime, t.at, expectedTime)
	}
	return m
}

const expectedTime = "expected an RFC 3339 time such as 2026-11-21T10:00:00.123Z, or Unix milliseconds, in the years 0 to 9999"

// momentOf reads RFC 3339, or a number of Unix milliseconds or seconds, cut to microseconds towards the past;
// null is NoTime.
func momentOf(t *token) (m Micros, ok bool) {
	switch t.kind {
	case tokNull:
		return NoTime, true
	case tokString:
		if m, ok := parseRFC3339(t.text); ok {
			return m, true
		}
	case tokNumber:
		n, _ := splitNumber(t.text)
		places := 3
		if n.seconds() {
			places = 6
		}
		u, rest, over := n.scaled(places)
		if over || u > math.MaxInt64/2 {
			break
		}
		m := Micros(u)
		if n.neg {
			m = -m
			if rest {
				m--
			}
		}
		if m >= MinTime && m <= MaxTime {
			return m, true
		}
	}
	return NoTime, false
}

// seconds reports whether a number is taken for Unix seconds, as Jackson and so spring-kafka write an Instant.
func (t *token) seconds() bool {
	if t.kind != tokNumber {
		return false
	}
	n, _ := splitNumber(t.text)
	return n.seconds()
}

// Numbers from the first, in 1973 as seconds, to before the second are seconds. As milliseconds they would lie
// in 1970, where no event is.
const (
	firstSeconds = 100_000_000
	endOfSeconds = uint64(365 * Day / Millisecond)
)

func (n *number) seconds() bool {
	u, _, over := n.scaled(0)
	return !over && !n.neg && u >= firstSeconds && u < endOfSeconds
}

// setIP drops what is no address: it is often filled in from a header that a client made up. Suspects
// tell of it.
func (d *Decoder) setIP(t *token) {
	d.event.IP, d.drop = netip.Addr{}, false
	if t.kind == tokNull || (t.kind == tokString && t.text == "") {
		return
	}
	if t.kind == tokString {
		if a, ok := ParseAddress(t.text); ok {
			d.event.IP = a
			return
		}
	}
	d.drop = true
}

// parseIPv4 reads what netip.ParseAddr reads as an IPv4 address, in a third of the time; it is false for
// all else.
func parseIPv4(s string) (netip.Addr, bool) {
	var a [4]byte
	part, value, size := 0, 0, 0
	for i := range len(s) {
		c := s[i] - '0'
		switch {
		case c <= 9 && (size == 0 || value > 0):
			if value, size = value*10+int(c), size+1; value > math.MaxUint8 {
				return netip.Addr{}, false
			}
		case s[i] == '.' && size > 0 && part < len(a)-1:
			a[part] = byte(value)
			part, value, size = part+1, 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	if part != len(a)-1 || size == 0 {
		return netip.Addr{}, false
	}
	a[part] = byte(value)
	return netip.AddrFrom4(a), true
}
