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

// TestConnectionsPass computes what each program connects to and listens on from its options, and asks the policies:
// each of these connections has a rule, and each rule a connection.
func TestConnectionsPass(t *testing.T) {
	for name, values := range map[string]string{"everything": everything, "minimal": minimal, "daemonset": sets["daemonset"], "chosen": chosen,
		"elsewhere": everything + "networkPolicy: {kafkaTo: [{ipBlock: {cidr: 10.1.0.0/16}}], redisPorts: [6390], consoleFrom: [{podSelector: {matchLabels: {a: b}}}], metricsFrom: []}\n"} {
		works, all := documents(t, values)
		for _, m := range refused(works, all) {
			t.Errorf("%s: %s", name, m)
		}
	}
}

// way is a connection of a pod, or what a rule lets pass: to a port, of the pods of a component if they are ours.
// The port of ours is its name; "" as a component is a server elsewhere.
type way struct{ component, port string }

// connections are what a program connects to, by its options.
func connections(c core.Container) map[way]bool {
	needs := map[way]bool{{"", "53/UDP"}: true, {"", "53/TCP"}: true}
	for _, arg := range c.Args {
		option, value, _ := strings.Cut(arg, "=")
		switch option {
		case "--kafka", "--redis":
			for addr := range strings.SplitSeq(value, ",") {
				needs[way{"", addr[strings.LastIndex(addr, ":")+1:] + "/TCP"}] = true
			}
		case "--oidc-issuer":
			needs[way{"", "443/TCP"}] = true
		case "--notify": // its receivers
			needs[way{"", "443/TCP"}] = true
		case "--aggregator", "--advertise": // the console and notify ask aggregators, which ask each other
			if strings.HasSuffix(value, ".svc:8081") {
				needs[way{"aggregator", "api"}] = true
			}
		}
	}
	if c.Name == "console" { // it asks enforcers at the addresses that they announce
		needs[way{"enforcer", "http"}] = true
	}
	return needs
}

// listens are the ports that a program opens, by its options, as the container names them.
func listens(c core.Container) (names []string) {
	for _, arg := range c.Args {
		if option, addr, _ := strings.Cut(arg, "="); strings.HasSuffix(option, "listen") {
			port := addr[strings.LastIndex(addr, ":")+1:]
			at := slices.IndexFunc(c.Ports, func(p core.ContainerPort) bool { return fmt.Sprint(p.ContainerPort) == port })
			if at < 0 {
				names = append(names, "the unnamed "+port)
				continue
			}
			names = append(names, c.Ports[at].Name)
		}
	}
	return names
}

const component = "app.kubernetes.io/component"

// refused are connections that policies refuse though a program needs them, or let pass without need.
func refused(works []workload, all []any) (found []string) {
	for _, w := range works {
		c := w.template.Spec.Containers[0]
		var policies []*networking.NetworkPolicy
		for _, o := range all {
			if p, is := o.(*networking.NetworkPolicy); is && selects(p.Spec.PodSelector.MatchLabels, w.template.Labels) {
				policies = append(policies, p)
			}
		}
		if len(policies) != 1 || len(policies[0].Spec.PolicyTypes) != 2 {
			found = append(found, fmt.Sprintf("%s has %d policies, want one of both ways", w.name, len(policies)))
			continue
		}
		found = append(found, departures(w.name, connections(c), policies[0].Spec.Egress)...)
		found = append(found, entrances(w.name, listens(c), policies[0].Spec.Ingress)...)
	}
	return append(found, unmet(works, all)...)
}

// departures compares what a program connects to with what its policy lets out.
func departures(name string, needs map[way]bool, rules []networking.NetworkPolicyEgressRule) (found []string) {
	lets := map[way]bool{}
	for _, rule := range rules {
		if len(rule.Ports) == 0 {
			found = append(found, name+" may connect to every port")
		}
		for _, port := range rule.Ports {
			if len(rule.To) == 1 && rule.To[0].PodSelector != nil {
				lets[way{rule.To[0].PodSelector.MatchLabels[component], port.Port.String()}] = true
				continue
			}
			lets[way{"", port.Port.String() + "/" + string(*port.Protocol)}] = true
		}
	}
	for w := range needs {
		if !lets[w] {
			found = append(found, fmt.Sprintf("%s may not connect to %v", name, w))
		}
	}
	for w := range lets {
		if !needs[w] && w.port != "6390/TCP" { // a value of the test's
			found = append(found, fmt.Sprintf("%s may connect to %v, and does not", name, w))
		}
	}
	return found
}

// entrances compares the ports that a program opens with what its policy lets in. Everybody gets to what users ask.
func entrances(name string, opens []string, rules []networking.NetworkPolicyIngressRule) (found []string) {
	let := map[string]bool{}
	for _, rule := range rules {
		if len(rule.Ports) == 0 {
			found = append(found, "every port of "+name+" may be reached")
		}
		for _, port := range rule.Ports {
			let[port.Port.StrVal] = true
			if !slices.Contains(opens, port.Port.StrVal) {
				found = append(found, fmt.Sprintf("%s does not listen on %s", name, port.Port))
			}
			if len(rule.From) == 0 && !slices.Contains([]string{"http", "grpc"}, port.Port.StrVal) {
				found = append(found, fmt.Sprintf("everybody may reach %s of %s", port.Port, name))
			}
		}
	}
	for _, port := range opens {
		if !let[port] {
			found = append(found, fmt.Sprintf("nobody may reach %s of %s", port, name))
		}
	}
	return found
}

// unmet are connections between our pods that leave the one and do not get into the other.
func unmet(works []workload, all []any) (found []string) {
	in := func(from, to workload, port string) bool {
		for _, o := range all {
			p, is := o.(*networking.NetworkPolicy)
			if !is || !selects(p.Spec.PodSelector.MatchLabels, to.template.Labels) {
				continue
			}
			for _, rule := range p.Spec.Ingress {
				if slices.ContainsFunc(rule.Ports, func(q networking.NetworkPolicyPort) bool { return q.Port.StrVal == port }) &&
					(len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(f networking.NetworkPolicyPeer) bool {
						return f.PodSelector != nil && f.NamespaceSelector == nil && selects(f.PodSelector.MatchLabels, from.template.Labels)
					})) {
					return true
				}
			}
		}
		return false
	}
	for _, from := range works {
		for w := range connections(from.template.Spec.Containers[0]) {
			for _, to := range works {
				if w.component != "" && to.template.Labels[component] == w.component && !in(from, to, w.port) {
					found = append(found, fmt.Sprintf("%s does not let %s in at %s", to.name, from.name, w.port))
				}
			}
		}
	}
	return found
}

// The checks above would notice these.
func TestBrokenPolicies(t *testing.T) {
	of := func(all []any, name string) *networking.NetworkPolicySpec {
		for _, o := range all {
			if p, is := o.(*networking.NetworkPolicy); is && p.Name == "tallygate-"+name {
				return &p.Spec
			}
		}
		t.Fatalf("no policy of %s", name)
		return nil
	}
	for want, breaks := range map[string]func(all []any){
		"enforcer may not connect to { 6380/TCP}": func(all []any) { of(all, "enforcer").Egress = of(all, "enforcer").Egress[:1] },
		"enforcer may connect to every port":      func(all []any) { of(all, "enforcer").Egress[0].Ports = nil },
		"aggregator may connect to {enforcer http}": func(all []any) {
			of(all, "aggregator").Egress = append(of(all, "aggregator").Egress, of(all, "console").Egress...)
		},
		"nobody may reach metrics of tallygate-notify":           func(all []any) { of(all, "notify").Ingress = nil },
		"everybody may reach api of tallygate-aggregator":        func(all []any) { of(all, "aggregator").Ingress[0].From = nil },
		"every port of tallygate-console may be reached":         func(all []any) { of(all, "console").Ingress[0].Ports = nil },
		"aggregator does not let tallygate-notify in at api":     func(all []any) { of(all, "aggregator").Ingress[0].From = of(all, "aggregator").Ingress[0].From[:2] },
		"tallygate-console does not listen on grpc":              func(all []any) { of(all, "console").Ingress[0].Ports = of(all, "enforcer").Ingress[0].Ports },
		"tallygate-console has 0 policies, want one of both way": func(all []any) { of(all, "console").PodSelector.MatchLabels = map[string]string{"other": "pods"} },
	} {
		works, all := documents(t, everything)
		breaks(all)
		if found := strings.Join(refused(works, all), "\n"); !strings.Contains(found, want) {
			t.Errorf("it does not say %q:\n%s", want, found)
		}
	}
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
