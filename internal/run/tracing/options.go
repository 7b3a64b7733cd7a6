package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// Options are a program's options for tracing.
type Options struct {
	o  *ops.Options
	to *string
}

// NewOptions adds the options.
func NewOptions(o *ops.Options) *Options {
	return &Options{o, o.String("trace-otlp", "", "send the spans of sampled traces to the OpenTelemetry collector at this `URL` or HOST:PORT, by OTLP over HTTP, such as http://otel-collector:4318 (default OTEL_EXPORTER_OTLP_ENDPOINT, and none if that is not set; none: don't)")}
}

// Build makes the Exporter of a program; nil if spans go nowhere. instance may be "".
func (t *Options) Build(program, instance string, reg prometheus.Registerer, log *slog.Logger) (*Exporter, error) {
	g, err := Read(*t.to, t.o.Getenv)
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if g.Ignored != "" {
		log.Warn("no spans are sent, although the environment names a collector", "reason", g.Ignored, "advice", "give --trace-otlp the address of the collector's OTLP over HTTP, usually port 4318")
	}
	if g.Endpoint == "" {
		return nil, nil
	}
	g.Files.Log = func() *slog.Logger { return log }
	transport, err := ops.NewReread(g.Files, baseTransport())
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	log.Info("spans of sampled traces are sent to a collector", "url", g.Endpoint)
	return New(Config{
		Endpoint: g.Endpoint, Headers: g.Headers, Service: cmp.Or(g.Service, "tallygate-"+program), Version: ops.Version(), Instance: instance,
		Resource: g.Resource, Transport: transport, Registry: reg, Logger: log,
	}), nil
}

// Every checks the value of --trace-sample, and returns the N of one in N; 0 for none.
func Every(share float64) (uint64, error) {
	if !(share >= 0 && share <= 1) || share > 0 && share < 1e-9 {
		return 0, fmt.Errorf("--trace-sample %v: want a share of 0 to 1, such as 0.01", share)
	}
	if share == 0 {
		return 0, nil
	}
	return uint64(1/share + 0.5), nil
}

// Given is the collector by an option and the standard environment of OpenTelemetry.
type Given struct {
	Endpoint string // "": nowhere
	Headers  map[string]string
	Service  string // "": the program's own
	Resource map[string]string
	Files    ops.ClientFiles // what the connection trusts, and shows
	// Ignored is why the environment's endpoint is not used; "" if it is, or if there is none.
	Ignored string
}

const (
	tracesPath = "/v1/traces"
	// none is the option's value by which the environment's endpoint is not used.
	none = "none"
)

// Read reads the option --trace-otlp, and where that is absent the environment of OpenTelemetry. Credentials
// are only in the environment: options are no place for them.
func Read(option string, getenv func(string) string) (g Given, err error) {
	if err := g.readEndpoint(option, getenv); err != nil {
		return Given{}, err
	}
	if g.Endpoint == "" {
		return g, nil
	}
	g.Headers, err = readList("OTEL_EXPORTER_OTLP_TRACES_HEADERS", cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), getenv("OTEL_EXPORTER_OTLP_HEADERS")))
	resource, resourceErr := readList("OTEL_RESOURCE_ATTRIBUTES", getenv("OTEL_RESOURCE_ATTRIBUTES"))
	g.Resource, g.Service = resource, cmp.Or(getenv("OTEL_SERVICE_NAME"), resource["service.name"])
	delete(g.Resource, "service.name")
	for i, what := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		name := "OTEL_EXPORTER_OTLP_" + what
		*[]*string{&g.Files.CA, &g.Files.Cert, &g.Files.Key}[i] = cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+what), getenv(name))
		g.Files.Names[i] = name
	}
	return g, errors.Join(err, resourceErr)
}

func (g *Given) readEndpoint(option string, getenv func(string) string) (err error) {
	if option == none {
		return nil
	}
	if option != "" {
		g.Endpoint, err = endpoint(option)
		if err != nil {
			return fmt.Errorf("--trace-otlp: %w", err)
		}
		return nil
	}
	whole, base := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	if whole == "" && base == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == none {
		return nil
	}
	if p := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); p == "grpc" {
		g.Ignored = "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and this program speaks http/protobuf"
		return nil
	}
	if whole != "" {
		g.Endpoint, err = endpoint(whole)
	} else {
		g.Endpoint, err = endpoint(strings.TrimSuffix(base, "/") + tracesPath)
	}
	if err != nil {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	return nil
}

// endpoint is the URL of HOST:PORT or a URL, with OTLP's own path if it has none.
func endpoint(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	const want = "want host:port, or a URL such as http://otel-collector:4318"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New(want) // the error has the text, in which may be a password
	case u.User != nil:
		return "", errors.New("no credentials in the URL: put them into OTEL_EXPORTER_OTLP_HEADERS")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.RawQuery != "", u.Fragment != "":
		return "", fmt.Errorf("%q: %s", text, want)
	}
	if _, port, err := net.SplitHostPort(u.Host); err == nil && port == "" {
		return "", fmt.Errorf("%q: %s", text, want)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// readList reads key=value,key=value, with values percent-encoded. Errors don't have the values.
func readList(name, text string) (map[string]string, error) {
	all := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !found || key == "" || err != nil {
			return nil, fmt.Errorf("%s: want key=value,key=value with percent-encoded values", name)
		}
		all[key] = value
	}
	return all, nil
}
