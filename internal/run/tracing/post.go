package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// answer is a collector's.
type answer struct {
	refused  bool  // it will never take the request
	rejected int64 // spans that it did not take
	message  string
}

const protobuf = "application/x-protobuf"

// temporary are the statuses after which OTLP wants a request to be sent again.
var temporary = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// post sends a batch once.
func (e *Exporter) post(ctx context.Context, batch []Span) (answer, error) {
	body, err := proto.Marshal(request(e.resource, batch))
	if err != nil {
		return answer{refused: true}, fmt.Errorf("encode spans: %w", err) // a string that is not UTF-8
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.Endpoint, bytes.NewReader(body))
	if err != nil {
		return answer{refused: true}, fmt.Errorf("ask the collector of traces: %w", err)
	}
	for name, value := range e.cfg.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", protobuf)
	resp, err := e.client.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("ask the collector of traces: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return answer{refused: !slices.Contains(temporary, resp.StatusCode)}, fmt.Errorf("the collector of traces answers %s", resp.Status)
	}
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of the collector of traces: %w", err)
	}
	a, err := readAnswer(text)
	if err != nil {
		return answer{}, nil //nolint:nilerr // it took them; what it says of that is for the log only
	}
	return a, nil
}

var errAnswer = errors.New("it is no answer of OTLP")

// readAnswer reads an ExportTraceServiceResponse, whose package links gRPC: field 1 is partial_success, of
// which field 1 is rejected_spans and field 2 error_message.
func readAnswer(text []byte) (a answer, err error) {
	partial, err := field(text, 1, protowire.BytesType)
	if err != nil || len(partial) == 0 {
		return answer{}, err
	}
	number, err := field(partial, 1, protowire.VarintType)
	if err != nil {
		return answer{}, err
	}
	if len(number) > 0 {
		n, _ := protowire.ConsumeVarint(number)
		a.rejected = max(0, int64(n))
	}
	message, err := field(partial, 2, protowire.BytesType)
	a.message = string(message)
	return a, err
}

// field is the content of the first field of this number; nil for none.
func field(text []byte, number protowire.Number, kind protowire.Type) ([]byte, error) {
	for len(text) > 0 {
		n, k, size := protowire.ConsumeTag(text)
		if size < 0 {
			return nil, errAnswer
		}
		text = text[size:]
		size = protowire.ConsumeFieldValue(n, k, text)
		if size < 0 {
			return nil, errAnswer
		}
		if n == number && k == kind {
			if kind == protowire.BytesType {
				content, _ := protowire.ConsumeBytes(text)
				return content, nil
			}
			return text[:size], nil
		}
		text = text[size:]
	}
	return nil, nil
}
