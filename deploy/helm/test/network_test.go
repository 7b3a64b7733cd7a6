package helmtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// TestConnectionsPass computes what each program connects to from its options, and asks the policies.
func TestConnectionsPass(t *testing.T) {
	works, all := documents(t, everything)
	for _, m := range refused(works, all) {
		t.Error(m)
	}
}

// refused are connections that policies refuse though a program needs them, or let pass without need.
func refused(works []workload, all []any) (found []string) {
	for _, w := range works {
		c := w.template.Spec.Containers[0]
		var wants, may []string
		for _, arg := range c.Args {
			option, value, _ := strings.Cut(arg, "=")
			if !slices.Contains([]string{"--kafka", "--redis"}, option) {
				continue
			}
			for addr := range strings.SplitSeq(value, ",") {
				wants = append(wants, addr[strings.LastIndex(addr, ":")+1:])
			}
		}
		for _, o := range all {
			p, is := o.(*networking.NetworkPolicy)
			if !is || !selects(p.Spec.PodSelector.MatchLabels, w.template.Labels) {
				continue
			}
			for _, e := range p.Spec.Egress {
				for _, port := range e.Ports {
					may = append(may, port.Port.String())
				}
			}
			found = append(found, entrances(w.name, c, p.Spec.Ingress)...)
		}
		for _, port := range append(wants, "53") {
			if !slices.Contains(may, port) {
				found = append(found, fmt.Sprintf("%s may not connect to port %s: %v", w.name, port, may))
			}
		}
		if len(may) > len(wants)+6 { // DNS twice, the API, enforcers, OIDC or notifications
			found = append(found, fmt.Sprintf("%s may connect to more than it needs: %v, needs %v", w.name, may, wants))
		}
	}
	return found
}

func entrances(name string, c core.Container, rules []networking.NetworkPolicyIngressRule) (found []string) {
	for _, rule := range rules {
		for _, port := range rule.Ports {
			if !hasPort(c, port.Port.StrVal) {
				found = append(found, fmt.Sprintf("%s has no port %s", name, port.Port))
			}
		}
		if len(rule.From) == 0 && rule.Ports[0].Port.StrVal != "http" {
			found = append(found, fmt.Sprintf("everybody may reach %s of %s", rule.Ports[0].Port, name))
		}
	}
	return found
}
