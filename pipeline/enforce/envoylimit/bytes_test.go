package envoylimit_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
)

const (
	rateLimitMethod = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	checkMethod     = "/envoy.service.auth.v3.Authorization/Check"
)

// wild stands for the bytes "\xff\xfe" in messages, which protobuf would not write.
const wild = "¤"

// wire is a message as Envoy sends it, with bytes for each wild.
func wire(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b, []byte(wild), []byte("\xff\xfe"))
}

// invoke calls a method with a message that is sent as it is.
func invoke(t *testing.T, conn grpc.ClientConnInterface, name string, message []byte, answer any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in := &emptypb.Empty{}
	in.ProtoReflect().SetUnknown(message)
	return conn.Invoke(ctx, name, in, answer)
}

// Protobuf refuses text that is not UTF-8, so gRPC answered INTERNAL, and an Envoy that is open let in
// whoever wrote such a byte into the path.
func TestRateLimitTakesTextThatIsNotUTF8(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, block("uid", "42", "*"), block("uid", event.CanonicalUID("u\xff\xfe"), "get.search"),
		block("attrs.agent", event.CanonicalText("\xff\xfe"), "*"))})
	for _, c := range []struct {
		entries []string
		denied  bool
	}{
		{[]string{"uid=42", "method=GET", "path=/search?" + wild}, true},
		{[]string{"uid=42", "method=" + wild, "path=" + wild}, true},
		{[]string{"uid=u" + wild, "path=/search?" + wild}, true},
		{[]string{"attrs.agent=" + wild, "path=/"}, true},
		{[]string{wild + "=" + wild, "uid=43", "path=/" + wild}, false},
		{[]string{"uid=u" + wild, "path=/orders"}, false},
	} {
		var out rlsv3.RateLimitResponse
		req := &rlsv3.RateLimitRequest{Domain: wild, HitsAddend: 2}
		req.Descriptors = append(req.Descriptors, descriptor("uid=1"), descriptor(c.entries...))
		if err := invoke(t, conn, rateLimitMethod, wire(t, req), &out); err != nil {
			t.Errorf("%q: %v", c.entries, err)
		}
		want := []rlsv3.RateLimitResponse_Code{ok, ok}
		if c.denied {
			want[1] = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		if got := codes(&out); fmt.Sprint(got) != fmt.Sprint(want) || out.GetOverallCode() != want[1] {
			t.Errorf("%q: %v", c.entries, &out)
		}
	}
}

func TestCheckTakesTextThatIsNotUTF8(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, block("uid", "42", "*"), block("uid", event.CanonicalUID("u\xff\xfe"), "get.search"))})
	raw := func(uid string) *authv3.AttributeContext {
		a := from("GET", "/search?"+wild)
		a.Request.Http.Headers = nil
		a.Request.Http.HeaderMap = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: "x-tallygate-uid", RawValue: []byte(uid)}, {Key: wild, Value: wild}}}
		return a
	}
	routed := from("GET", "/"+wild, "x-agent: "+wild)
	routed.ContextExtensions = map[string]string{"uid": "42", wild: wild}
	known := from("GET", "/", "x-tallygate-uid: 42")
	known.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{wild: {Fields: map[string]*structpb.Value{
		wild: structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(wild), structpb.NewNumberValue(1)}})}}}}
	for about, c := range map[string]struct {
		attributes *authv3.AttributeContext
		denied     bool
	}{
		"a path":            {from("GET", "/search?"+wild, "x-tallygate-uid: 42"), true},
		"a method":          {from(wild, "/search", "x-tallygate-uid: 42"), true},
		"another header":    {from("GET", "/search", "x-tallygate-uid: 42", "x-agent: "+wild), true},
		"a header's name":   {from("GET", "/search", "x-tallygate-uid: 42", "x-"+wild+": 1"), true},
		"a user's name":     {from("GET", "/search?"+wild, "x-tallygate-uid: u"+wild), true},
		"raw headers":       {raw("u\xff\xfe"), true},
		"a route's context": {routed, true},
		"metadata":          {known, true},
		"another user":      {from("GET", "/"+wild, "x-tallygate-uid: 43"), false},
		"another path":      {from("GET", "/orders", "x-tallygate-uid: u"+wild), false},
	} {
		var out authv3.CheckResponse
		if err := invoke(t, conn, checkMethod, wire(t, &authv3.CheckRequest{Attributes: c.attributes}), &out); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		if denied := out.GetDeniedResponse() != nil; denied != c.denied || out.GetHttpResponse() == nil {
			t.Errorf("%s: %v", about, &out)
		}
	}
}

// What protobuf can read is read alike, also where one text in it is not UTF-8.
func TestMessagesAreReadAlike(t *testing.T) {
	asked := make(chan proto.Message, 1)
	s, err := envoylimit.New(envoylimit.Config{Decider: tableOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	see := func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		asked <- in.(proto.Message)
		return next(ctx, in)
	}
	full := from("GET", "/search?q=1", "x-tallygate-uid: 42", "accept: a, b")
	full.ContextExtensions = map[string]string{"api": "search"}
	full.Request.Http.Size, full.Request.Http.RawBody = -1, []byte("\xff\xfe")
	full.Source.Principal, full.Source.Labels = "me", map[string]string{"a": "b"}
	full.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"f": {Fields: map[string]*structpb.Value{
		"n": structpb.NewNumberValue(1.5), "l": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewBoolValue(true), structpb.NewNullValue()}})}}}}
	for _, m := range []proto.Message{
		&rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: 3},
		&authv3.CheckRequest{Attributes: full},
	} {
		want := proto.Clone(m)
		var service int
		if r, isLimit := m.(*rlsv3.RateLimitRequest); isLimit {
			r.Descriptors = append(r.Descriptors, descriptor("uid=42", "path=/x"))
			want = proto.Clone(m)
			r.Domain = wild
			want.(*rlsv3.RateLimitRequest).Domain = "\xff\xfe"
		} else {
			service = 1
			m.(*authv3.CheckRequest).Attributes.Request.Http.Fragment = wild
			want.(*authv3.CheckRequest).Attributes.Request.Http.Fragment = "\xff\xfe"
		}
		if _, err := call(t, s, service, wire(t, m), see); err != nil {
			t.Fatal(err)
		}
		if got := <-asked; !proto.Equal(got, want) {
			t.Errorf("read %v\nwant %v", got, want)
		}
	}
	deep := []byte{}
	for range 200 { // Struct.fields[""].struct_value
		deep = protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), deep)
		deep = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), deep)
		deep = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), deep)
	}
	for i, broken := range map[string][]byte{"cut": {0x0a, 0xff}, "too deep": append(inContext(deep), inContext(appendText(nil, 1, "\xff"))...)} {
		if _, err := call(t, s, 1, broken, nil); status.Code(err) == grpccodes.OK {
			t.Errorf("%s: it is answered", i)
		}
	}
}

// inContext is a CheckRequest whose metadata_context has a Struct under some name.
func inContext(structure []byte) []byte {
	entry := protowire.AppendBytes(protowire.AppendTag(appendText(nil, 1, "\xff"), 2, protowire.BytesType), structure)
	metadata := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry)
	attributes := protowire.AppendBytes(protowire.AppendTag(nil, 11, protowire.BytesType), metadata)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), attributes)
}

// services collects the registrations of a Server.
type services []*grpc.ServiceDesc

func (s *services) RegisterService(d *grpc.ServiceDesc, _ any) { *s = append(*s, d) }

// call calls the only method of a service: 0 is the rate limit service, 1 is ext_authz.
func call(t testing.TB, s *envoylimit.Server, service int, message []byte, intercept grpc.UnaryServerInterceptor) (any, error) {
	var all services
	s.Register(&all)
	return all[service].Methods[0].Handler(s, t.Context(), func(into any) error { return proto.Unmarshal(message, into.(proto.Message)) }, intercept)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return appendText(b, field, string(message))
}

// Whatever a client puts where it can, who is blocked is denied, by an answer that can be sent.
func FuzzEnvoyNeverLetsInWhoIsBlocked(f *testing.F) {
	f.Add("GET", "/search?\xff", "x-agent", "\xc3\x28", false)
	f.Add("\x80", "", "x-tallygate-uid", "43", true)
	f.Add("POST", "http://[::1", "x-tallygate-attr-\xff", "\x00", true)
	f.Add("HEAD", "/%zz/..;/", ":path", "/", false)
	s, err := envoylimit.New(envoylimit.Config{Decider: tableOf(f, block("uid", "42", "*")), RequireDimensions: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, verb, path, name, value string, raw bool) {
		entry := func(key, value string) []byte {
			return appendMessage(nil, 1, appendText(appendText(nil, 1, key), 2, value))
		}
		var descriptor []byte
		for key, value := range map[string]string{"uid": "42", "method": verb, "path": path, "attrs.x": value} {
			descriptor = append(descriptor, entry(key, value)...)
		}
		answer, err := call(t, s, 0, appendMessage(appendText(nil, 1, "shop"), 2, descriptor), nil)
		if err != nil || answer.(*rlsv3.RateLimitResponse).GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("the rate limit service: %v, %v", answer, err)
		} else if _, err := proto.Marshal(answer.(proto.Message)); err != nil {
			t.Errorf("the answer can't be sent: %v", err)
		}

		http := appendText(appendText(nil, 2, verb), 4, path)
		if raw {
			header := func(name, value string) []byte {
				return appendMessage(nil, 1, appendText(appendText(nil, 1, name), 3, value))
			}
			http = appendMessage(http, 13, append(header("x-tallygate-uid", "42"), header(name, value)...))
		} else {
			for name, value := range map[string]string{name: value, "x-tallygate-uid": "42"} {
				http = appendMessage(http, 3, appendText(appendText(nil, 1, name), 2, value))
			}
		}
		request := appendMessage(nil, 1, appendMessage(nil, 4, appendMessage(nil, 2, http)))
		answer, err = call(t, s, 1, request, nil)
		if err != nil || answer.(*authv3.CheckResponse).GetDeniedResponse().GetStatus().GetCode() < 400 {
			t.Errorf("ext_authz: %v, %v", answer, err)
		} else if _, err := proto.Marshal(answer.(proto.Message)); err != nil {
			t.Errorf("the answer can't be sent: %v", err)
		}
	})
}
