package helmtest

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// TestConnectionsPass computes what each program connects to from its options, and asks the policies.
func TestConnectionsPass(t *testing.T) {
	works, all := documents(t, everything)
	policies := map[string]*networking.NetworkPolicy{}
	for _, o := range all {
		if p, is := o.(*networking.NetworkPolicy); is {
			policies[p.Name] = p
		}
	}
	for _, w := range works {
		p := policies[w.name]
		if p == nil {
			t.Errorf("%s has no policy", w.name)
			continue
		}
		var wants []string
		for _, arg := range w.template.Spec.Containers[0].Args {
			option, value, _ := strings.Cut(arg, "=")
			if !slices.Contains([]string{"--kafka", "--redis"}, option) {
				continue
			}
			for addr := range strings.SplitSeq(value, ",") {
				wants = append(wants, addr[strings.LastIndex(addr, ":")+1:])
			}
		}
		var may []string
		for _, e := range p.Spec.Egress {
			for _, port := range e.Ports {
				may = append(may, port.Port.String())
			}
		}
		for _, port := range append(wants, "53") {
			if !slices.Contains(may, port) {
				t.Errorf("%s may not connect to port %s: %v", w.name, port, may)
			}
		}
		if len(may) > len(wants)+6 { // DNS twice, the API, enforcers, OIDC or notifications
			t.Errorf("%s may connect to more than it needs: %v, needs %v", w.name, may, wants)
		}
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				if !slices.ContainsFunc(w.template.Spec.Containers[0].Ports, func(c core.ContainerPort) bool { return c.Name == port.Port.StrVal }) {
					t.Errorf("%s has no port %s", w.name, port.Port)
				}
			}
			if len(rule.From) == 0 && rule.Ports[0].Port.StrVal != "http" {
				t.Errorf("everybody may reach %s of %s", rule.Ports[0].Port, w.name)
			}
		}
	}
}
