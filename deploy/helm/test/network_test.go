package helmtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
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

// nowhere are routes from outside that lead to no Service's port.
func nowhere(all []any) (found []string) {
	leads := func(route, service, portName string, port int32) {
		for _, o := range all {
			if s, is := o.(*core.Service); is && s.Name == service && slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool {
				return p.Port == port || p.Name == portName
			}) {
				return
			}
		}
		found = append(found, fmt.Sprintf("%s leads to %s:%s%d, which no Service is", route, service, portName, port))
	}
	for _, o := range all {
		switch o := o.(type) {
		case *networking.Ingress:
			for _, r := range o.Spec.Rules {
				for _, p := range r.HTTP.Paths {
					leads("the Ingress", p.Backend.Service.Name, p.Backend.Service.Port.Name, p.Backend.Service.Port.Number)
				}
			}
		case *gateway.HTTPRoute:
			for _, r := range o.Spec.Rules {
				for _, b := range r.BackendRefs {
					leads("the HTTPRoute", string(b.Name), "", *b.Port)
				}
			}
		}
	}
	return found
}

func TestBrokenRoutes(t *testing.T) {
	for name, values := range map[string]string{"HTTPRoute": sets["route"], "Ingress": everything} {
		_, all := documents(t, values)
		if found := nowhere(all); len(found) != 0 {
			t.Error(found)
		}
		for _, o := range all {
			if s, is := o.(*core.Service); is && s.Name == "tallygate-console" {
				s.Spec.Ports = s.Spec.Ports[1:]
			}
		}
		if found := fmt.Sprint(nowhere(all)); !strings.Contains(found, name) {
			t.Errorf("%s: it found only %s", name, found)
		}
	}
}
