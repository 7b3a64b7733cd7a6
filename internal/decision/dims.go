package decision

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
)

// value is an attribute as keys compare it: the text of a string, a number or a boolean.
type value string

func (v *value) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	switch data[0] {
	case '"':
		return json.Unmarshal(data, (*string)(v))
	case '{', '[':
		return errors.New("an attribute is a string, a number or a boolean")
	case 'n':
		*v = ""
	case 't', 'f':
		*v = value(data)
	default:
		text, ok := event.CanonicalNumber(string(data))
		if !ok {
			return fmt.Errorf("attribute %.40s: a number beyond all bounds", data)
		}
		*v = value(text)
	}
	return nil
}

// dims are the check's dimensions, sorted by name; what is empty is absent.
func (c *Check) dims() ([]event.Dim, error) {
	if c.API == "" {
		return nil, errors.New("api is required")
	}
	var out []event.Dim
	for name, v := range c.Attrs {
		if v != "" {
			out = append(out, event.Dim{Name: "attrs." + name, Value: string(v)})
		}
	}
	if c.IP != "" {
		ip, err := netip.ParseAddr(c.IP)
		if err != nil {
			return nil, fmt.Errorf("ip %q is no IPv4 or IPv6 address", c.IP)
		}
		out = append(out, event.Dim{Name: "ip", Value: ip.Unmap().WithZone("").String()})
	}
	if c.UID != "" {
		out = append(out, event.Dim{Name: "uid", Value: c.UID})
	}
	slices.SortFunc(out, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// forwardAuth answers a proxy that asks before it lets a request through: who and what are
// in headers, or the API is made from the original method and path.
func (s *Server) forwardAuth(w http.ResponseWriter, r *http.Request) {
	c := s.fromHeaders(r)
	dims, err := c.dims()
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if d := s.decide(c.API, dims); !d.Allowed {
		enforce.WriteDenied(w, r, d)
		return
	}
	w.WriteHeader(s.cfg.AllowStatus)
}

// The headers in which proxies name the original request: nginx by convention, Traefik and
// Caddy by themselves.
var (
	methodHeaders = []string{"X-Original-Method", "X-Forwarded-Method"}
	pathHeaders   = []string{"X-Original-Uri", "X-Forwarded-Uri"}
)

func (s *Server) fromHeaders(r *http.Request) Check {
	c := Check{
		UID: r.Header.Get(s.cfg.UIDHeader),
		IP:  r.Header.Get(s.cfg.IPHeader),
		API: r.Header.Get(s.cfg.APIHeader),
	}
	if c.API == "" {
		c.API = enforce.PathAPI(first(r, methodHeaders, http.MethodGet), first(r, pathHeaders, "/"))
	}
	for name, values := range r.Header {
		if attr, ok := strings.CutPrefix(name, s.cfg.AttrPrefix); ok && attr != "" {
			if c.Attrs == nil {
				c.Attrs = map[string]value{}
			}
			c.Attrs[strings.ToLower(attr)] = value(values[0])
		}
	}
	return c
}

func first(r *http.Request, headers []string, otherwise string) string {
	for _, h := range headers {
		if v := r.Header.Get(h); v != "" {
			return v
		}
	}
	return otherwise
}
