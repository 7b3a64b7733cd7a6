package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// The reference decoder: the same meaning as Decoder, written as plainly as encoding/json
// allows. The fuzz test holds the two against each other.

type refRecord struct {
	events []Event
	bad    []int // indexes; WholeRecord alone
}

var refWhole = refRecord{bad: []int{WholeRecord}}

func refDecode(value []byte, m mode, headers map[string]string) refRecord {
	if len(value) > MaxArrayBytes {
		return refWhole
	}
	text := bytes.Trim(value, " \t\r\n")
	if m == inHeaders && len(text) == 0 {
		text = []byte("{}")
	}
	if !json.Valid(text) {
		return refWhole
	}
	elements := []json.RawMessage{text}
	if isArray := text[0] == '['; isArray && (m == plain || m == batch) {
		elements = nil // Unmarshal would write into text
		if json.Unmarshal(text, &elements) != nil || len(elements) > MaxArray {
			return refWhole
		}
	} else if isArray || text[0] != '{' || m == batch {
		return refWhole
	}
	var r refRecord
	for i, element := range elements {
		if e, ok := refEvent(element, m, headers); ok {
			r.events = append(r.events, e)
		} else {
			r.bad = append(r.bad, i)
		}
	}
	return r
}

func refEvent(raw []byte, m mode, headers map[string]string) (e Event, ok bool) {
	if len(raw) > MaxBytes || raw[0] != '{' {
		return e, false
	}
	f := refObject(raw)
	if m == structured || m == batch {
		envelope := f
		if f, ok = refData(envelope); !ok {
			return e, false
		}
		refAttributes(f, envelope)
	}
	if m == inHeaders {
		attributes := map[string]json.RawMessage{}
		for k, v := range headers {
			attributes[k], _ = json.Marshal(v)
		}
		refAttributes(f, attributes)
	}
	return refFields(f)
}

func refFields(f map[string]json.RawMessage) (e Event, ok bool) {
	good := true
	text := func(name string) string {
		s, ok := refString(f[name])
		good = good && ok
		return s
	}
	named := func(name string) string { // an integer is its digits
		u := f[name]
		if len(u) == 0 || u[0] != '-' && (u[0] < '0' || u[0] > '9') {
			return text(name)
		}
		n, isInt := new(big.Int).SetString(string(u), 10)
		if good = good && isInt; !isInt {
			return ""
		}
		return n.String()
	}
	e.ID, e.Refunds, e.Outcome = refID(named("id")), refID(named("refunds")), refCut(text("outcome"), MaxText)
	e.API = text("api")
	good = good && len(e.API) <= MaxAPI && e.API != "" && !strings.ContainsFunc(e.API, func(r rune) bool { return r < 32 || r == 127 })
	e.UID = refUID(named("uid"))
	var ok1, ok2, ok3, ok4 bool
	e.Time, ok1 = refTime(f["time"])
	e.BrokerTime, ok2 = refTime(f["broker_time"])
	e.Cost, ok3 = refCost(f["cost"])
	e.Attrs, ok4 = refAttrs(f["attrs"])
	permit, ok5 := refPermitAt(f["permit_at"])
	if permit.ID = refID(text("permit")); permit.ID != "" {
		e.Permit = permit
	}
	good = good && ok5
	if s, ok := refString(f["ip"]); ok {
		e.IP = refIP(s)
	}
	return e, good && ok1 && ok2 && ok3 && ok4 && (e.Cost >= 0 || e.Refunds != "")
}

var refIPForms = []*regexp.Regexp{
	regexp.MustCompile(`^(.*)$()`), regexp.MustCompile(`^\[(.*)\]$()`),
	regexp.MustCompile(`^\[(.*)\]:([0-9]{1,5})$`), regexp.MustCompile(`^([^:]*):([0-9]{1,5})$`),
}

// refIP tries each form in which an address may be written.
func refIP(s string) netip.Addr {
	for _, form := range refIPForms {
		if found := form.FindStringSubmatch(s); found != nil {
			a, err := netip.ParseAddr(found[1])
			_, noPort := strconv.ParseUint("0"+found[2], 10, 16)
			if err == nil && noPort == nil {
				return a.Unmap().WithZone("")
			}
		}
	}
	return netip.Addr{}
}

// refPermitAt reads an object key by key, since an earlier one of too many keeps its place.
func refPermitAt(raw json.RawMessage) (p Permit, ok bool) {
	if refNull(raw) || raw[0] != '{' {
		at, ok := refTime(raw)
		return Permit{At: at}, ok
	}
	p.At = NoTime
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token()
	wrong := map[string]bool{}
	for d.More() {
		token, _ := d.Token()
		key := token.(string)
		var value json.RawMessage
		_ = d.Decode(&value)
		if quoted := AppendString(nil, key); key == "" || len(quoted)-2 > MaxText {
			continue
		}
		at, good := refTime(value)
		i := slices.IndexFunc(p.Keys, func(k PermitKey) bool { return k.Key == key })
		switch {
		case i >= 0 && good && at == NoTime:
			p.Keys = slices.Delete(p.Keys, i, i+1)
		case i >= 0:
			p.Keys[i].At = at
		case good && at == NoTime || len(p.Keys) == MaxPermitKeys:
			continue
		default:
			p.Keys = append(p.Keys, PermitKey{key, at})
		}
		wrong[key] = !good
	}
	for _, bad := range wrong {
		if bad {
			return p, false
		}
	}
	return p, true
}

func refObject(raw []byte) map[string]json.RawMessage {
	f := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &f); err != nil {
		panic(err)
	}
	return f
}

func refNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func refData(envelope map[string]json.RawMessage) (map[string]json.RawMessage, bool) {
	data := envelope["data"]
	if refNull(data) {
		s, ok := refString(envelope["data_base64"])
		if !ok || refNull(envelope["data_base64"]) {
			return map[string]json.RawMessage{}, true
		}
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil || !json.Valid(b) {
			return nil, false
		}
		data = bytes.Trim(b, " \t\r\n")
	}
	if data[0] != '{' {
		return nil, false
	}
	return refObject(data), true
}

func refAttributes(f, from map[string]json.RawMessage) {
	for _, name := range [][2]string{{"time", "time"}, {"type", "api"}, {"subject", "uid"}, {"id", "id"}} {
		if raw := from[name[0]]; !refNull(raw) && string(raw) != `""` {
			f[name[1]] = raw
		}
	}
	id, ok := refString(from["id"])
	source, ok2 := refString(from["source"])
	if ok && ok2 && id != "" && source != "" {
		f["id"], _ = json.Marshal(source + "/" + id)
	}
}

func refString(raw json.RawMessage) (s string, ok bool) {
	if refNull(raw) {
		return "", true
	}
	return s, json.Unmarshal(raw, &s) == nil
}

func refTime(raw json.RawMessage) (Micros, bool) {
	if refNull(raw) {
		return NoTime, true
	}
	if s, ok := refString(raw); ok {
		return refRFC3339(s)
	}
	r, ok := refNumber(raw)
	if !ok {
		return NoTime, false
	}
	r.Mul(r, big.NewRat(1000, 1))
	if r.Cmp(big.NewRat(100_000_000_000, 1)) >= 0 && r.Cmp(big.NewRat(31_536_000_000_000, 1)) < 0 { // seconds
		r.Mul(r, big.NewRat(1000, 1))
	}
	floor := new(big.Int).Div(r.Num(), r.Denom()) // Euclidean: towards the past
	if !floor.IsInt64() {
		return NoTime, false
	}
	m := Micros(floor.Int64())
	return m, m >= MinTime && m <= MaxTime
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func refRFC3339(s string) (Micros, bool) {
	leap := false
	if len(s) > 19 && s[16:19] == ":60" {
		leap = true
		s = s[:16] + ":59" + s[19:]
	}
	t, err := time.Parse(time.RFC3339, strings.ToUpper(s))
	if err != nil || !rfc3339.MatchString(s) { // Parse alone takes more: one-digit hours, commas
		return NoTime, false
	}
	if leap {
		if u := t.UTC(); u.Hour() != 23 || u.Minute() != 59 {
			return NoTime, false
		}
		t = t.Add(time.Second)
	}
	m := FromTime(t)
	return m, m >= MinTime && m <= MaxTime
}

// refNumber gives up on exponents that no event's digits make up for: no field takes such numbers.
func refNumber(raw json.RawMessage) (*big.Rat, bool) {
	mantissa, exp, _ := strings.Cut(strings.ToLower(string(raw)), "e")
	if strings.Trim(mantissa, "-.0") == "" {
		return new(big.Rat), true
	}
	sign := ""
	if strings.HasPrefix(exp, "-") {
		sign = "-"
	}
	exp = strings.TrimLeft(exp, "+-0")
	if len(exp) > len("65536") {
		return nil, false
	}
	return new(big.Rat).SetString(mantissa + "e" + sign + "0" + exp)
}

func refCost(raw json.RawMessage) (Decimal, bool) {
	if refNull(raw) {
		return One, true
	}
	if raw[0] == '"' {
		return 0, false
	}
	r, ok := refNumber(raw)
	if !ok {
		return 0, false
	}
	r.Mul(r, big.NewRat(int64(One), 1))
	if near := refNear(r); near != nil {
		r = near
	}
	if !r.IsInt() || !r.Num().IsInt64() || r.Num().Int64() < -int64(MaxDecimal) {
		return 0, false
	}
	return Decimal(r.Num().Int64()), true
}

// refNear is the whole number that r is less than a thousandth from, if that is not 0.
func refNear(r *big.Rat) *big.Rat {
	if most := new(big.Rat).SetFrac(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(1000)); new(big.Rat).Abs(r).Cmp(most) >= 0 { // too large to be rounded
		return nil
	}
	half := big.NewRat(1, 2)
	if r.Sign() < 0 {
		half.Neg(half)
	}
	sum := new(big.Rat).Add(r, half)
	near := new(big.Rat).SetInt(new(big.Int).Quo(sum.Num(), sum.Denom()))
	away := new(big.Rat).Sub(r, near)
	towards := away.Sign() != 0 && away.Sign() != r.Sign() // from 0
	limit := away.Abs(away).Cmp(big.NewRat(1, 1000))
	if near.Sign() == 0 || limit > 0 || limit == 0 && !towards {
		return nil
	}
	return near
}

func refAttrs(raw json.RawMessage) (attrs []Attr, ok bool) {
	if refNull(raw) {
		return nil, true
	}
	if raw[0] != '{' {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token()
	wrong := map[string]bool{}
	for d.More() {
		token, _ := d.Token()
		name := refCut(token.(string), maxAttrName)
		var value json.RawMessage
		_ = d.Decode(&value)
		v, good := refValue(value)
		if short := refCut(v.Text, MaxText); short != v.Text {
			v = Value{String, short}
		}
		delete(wrong, name)
		if !good {
			wrong[name] = true
		}
		at := -1
		for i := range attrs {
			if attrs[i].Name == name {
				at = i
			}
		}
		switch {
		case good && v.Text == "" && at >= 0:
			attrs = append(attrs[:at], attrs[at+1:]...)
		case good && v.Text == "":
		case at >= 0:
			attrs[at].Value = v
		case len(attrs) == MaxAttrs:
			return nil, false
		default:
			attrs = append(attrs, Attr{name, v})
		}
	}
	return attrs, len(wrong) == 0
}

func refValue(raw json.RawMessage) (Value, bool) {
	switch c := raw[0]; c {
	case 'n':
		return Value{}, true
	case 't', 'f':
		return Value{Bool, string(raw)}, true
	case '"':
		s, ok := refString(raw)
		return Value{String, s}, ok
	case '{', '[':
		return Value{}, false
	}
	text, ok := refCanonical(string(raw))
	return Value{Number, text}, ok
}

// refCanonical writes digits · 10^exp, with exp a big number, and decides only then.
func refCanonical(s string) (string, bool) {
	s, negative := strings.CutPrefix(strings.ToLower(s), "-")
	mantissa, e, _ := strings.Cut(s, "e")
	whole, frac, _ := strings.Cut(mantissa, ".")
	exp := new(big.Int)
	if e != "" {
		exp.SetString(strings.TrimPrefix(e, "+"), 10)
	}
	exp.Sub(exp, big.NewInt(int64(len(frac))))
	all := strings.TrimLeft(whole+frac, "0")
	short := strings.TrimRight(all, "0")
	if short == "" {
		return "0", true
	}
	exp.Add(exp, big.NewInt(int64(len(all)-len(short))))
	scientific := new(big.Int).Add(exp, big.NewInt(int64(len(short)-1)))
	if new(big.Int).Abs(scientific).Cmp(big.NewInt(maxExp)) > 0 {
		return "", false
	}
	out := ""
	switch n := int(exp.Int64()); {
	case n >= 0 && len(short)+n <= maxPlain:
		out = short + strings.Repeat("0", n)
	case n < 0 && max(len(short), 1-n) <= maxPlain:
		padded := strings.Repeat("0", max(0, 1-n-len(short))) + short
		out = padded[:len(padded)+n] + "." + padded[len(padded)+n:]
	default:
		out = short[:1]
		if len(short) > 1 {
			out += "." + short[1:]
		}
		out += "e" + scientific.String()
	}
	if negative {
		out = "-" + out
	}
	return out, true
}

// refUID, refID and refCut shorten as the reference page says.
func refUID(s string) string {
	if len(s) <= MaxUID {
		return s
	}
	return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(s)))
}

func refID(s string) string {
	if len(s) <= MaxID {
		return s
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:32]
}

func refCut(s string, limit int) string {
	size := func(s string) int {
		return len(AppendString(nil, s)) - len(`""`)
	}
	if size(s) <= limit {
		return s
	}
	tail := fmt.Sprintf("~sha256-%x", sha256.Sum256([]byte(s)))
	runes := []rune(s)
	n := sort.Search(len(runes)+1, func(n int) bool { return size(string(runes[:n]))+len(tail) > limit })
	return string(runes[:n-1]) + tail
}
