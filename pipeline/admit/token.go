package admit

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// ErrToken is wrapped by errors that say what is wrong with a token.
var ErrToken = errors.New("admit: this is no permit's token")

const (
	tokenVersion = "1."
	maxToken     = 256 << 10 // bytes, before they become text
	maxHolds     = maxKeys   // of a permit
	maxPartition = 1 << 20
)

// Token returns text by which Resume ends the permit later, in this process or in another one: for
// servers whose callers hold the permits. It is "" where there is nothing to end. What only this process
// holds is kept until then, or until Hold has passed. It returns an error where too much is kept
// already, or the text would be too long: then cancel the permit.
func (p *Permit) Token() (string, error) {
	if p.a == nil || !p.Admitted {
		return "", nil
	}
	here := p.others().instance != nil || len(p.others().local) > 0
	if p.first.id == "" && !p.emits() && !here {
		return "", nil
	}
	if here && p.rest.kept == "" {
		if err := p.a.kept.keep(p, p.a.Hold()); err != nil {
			return "", err
		}
	}
	out := appendPart(nil, p.others().kept)
	var holds []hold
	if p.first.id != "" {
		holds = append([]hold{p.first}, p.others().more...)
	}
	out = binary.AppendUvarint(out, uint64(len(holds)))
	for _, h := range holds {
		head := uint64(h.partition) << 1
		if h.inFlight {
			head |= 1
		}
		out = appendPart(appendPart(binary.AppendUvarint(out, head), h.id), h.key)
	}
	if p.emits() {
		e := p.eventOf("")
		out = event.AppendJSON(out, &e)
	}
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	if len(out) > maxToken {
		return "", fmt.Errorf("admit: a permit's token would have %d bytes, at most %d are allowed: its keys are too long", len(out), maxToken)
	}
	return tokenVersion + base64.RawURLEncoding.EncodeToString(out), nil
}

// Resume returns the permit of a token, to be ended by Done or Cancel. A permit is ended once, by one of
// the two: only in the process that granted it others do nothing. whole is false when another process
// holds some of it, which gives that back when Hold has passed.
func (a *Admitter) Resume(token string) (p *Permit, whole bool, err error) {
	text, known := strings.CutPrefix(token, tokenVersion)
	if !known || base64.RawURLEncoding.DecodedLen(len(text)) > maxToken {
		return nil, false, fmt.Errorf("%w: give the token that the answer to the request has", ErrToken)
	}
	in, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if n := len(in) - crc32.Size; err != nil || n < 0 || crc32.ChecksumIEEE(in[:n]) != binary.BigEndian.Uint32(in[n:]) {
		return nil, false, fmt.Errorf("%w: it was cut or changed", ErrToken)
	}
	r := parts{rest: in[:len(in)-crc32.Size]}
	here := r.text()
	p = &Permit{Admitted: true, a: a}
	if err := p.readHolds(&r); err != nil {
		return nil, false, err
	}
	if kept := a.kept.find(here); kept != nil {
		return kept, true, nil
	}
	if len(r.rest) > 0 {
		events, err := event.NewDecoder().Decode(r.rest, nil, nil, nil)
		if err != nil || len(events) != 1 {
			return nil, false, fmt.Errorf("%w: its event cannot be read", ErrToken)
		}
		e := events[0].Clone()
		p.change().event, p.Event = &e, e.Permit
	}
	return p, here == "", nil
}

func (p *Permit) readHolds(r *parts) error {
	n := r.number()
	if n > maxHolds {
		r.bad = true
	}
	for range min(n, maxHolds) {
		head := r.number()
		h := hold{partition: int32(min(head>>1, maxPartition)), inFlight: head&1 == 1, id: r.text(), key: r.text()}
		if h.partition == maxPartition || h.id == "" || len(h.id) > event.MaxID || h.key == "" || len(h.key) > event.MaxKey {
			r.bad = true
		}
		p.add(h)
	}
	if page := p.a.book.current.Load(); page != nil && page.shards != nil && !r.bad {
		for _, h := range append([]hold{p.first}, p.others().more...) {
			r.bad = r.bad || h.partition >= page.shards.Partitions
		}
	}
	if r.bad {
		return fmt.Errorf("%w: it is of another installation, or of a newer program", ErrToken)
	}
	return nil
}

func appendPart(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// parts reads a token. What is bad is zero.
type parts struct {
	rest []byte
	bad  bool
}

func (r *parts) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *parts) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
