package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// maxLine bounds a line of a stream, and an answer that is none: longer ones tell no usage.
const maxLine = 16 << 20

// metered is an answer that looks for its usage while it passes. At its end it notes it: before the request's event
// is emitted, also when the client has left.
type metered struct {
	io.ReadCloser
	ctx    context.Context
	c      *call
	stream bool
	over   bool

	line    []byte
	told    *usage
	deltas  int64 // bytes of the answer's text so far
	skipped bool  // a line was too long
}

// Read passes on what comes, at once.
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		end := -1
		if m.stream {
			end = bytes.IndexByte(rest, '\n')
		}
		part := rest
		if end >= 0 {
			part = rest[:end]
		}
		rest = rest[len(part):]
		if m.skipped = m.skipped || len(m.line)+len(part) > maxLine; !m.skipped {
			m.line = append(m.line, part...)
		}
		if end >= 0 {
			m.read()
			rest = rest[1:]
		}
	}
	if err == io.EOF { //nolint:errorlint // as readers say it
		m.read()
	}
	return n, err
}

// read reads a line of a stream, or a whole answer.
func (m *metered) read() {
	text, skipped := bytes.TrimSpace(m.line), m.skipped
	m.line, m.skipped = m.line[:0], false
	if data, is := bytes.CutPrefix(text, []byte("data:")); is == m.stream && !skipped {
		var chunk struct {
			Usage   *usage `json:"usage"`
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if json.Unmarshal(data, &chunk) != nil { // such as [DONE]
			return
		}
		for _, choice := range chunk.Choices {
			m.deltas += int64(len(choice.Delta.Content))
		}
		if chunk.Usage != nil {
			m.told = chunk.Usage
		}
	}
}

// Close settles the call. A stream that ended early has used its prompt, and what has come of its answer; of an answer
// without usage nobody knows more than was reserved.
func (m *metered) Close() error {
	if !m.over {
		switch m.over = true; {
		case m.told != nil:
			note(m.ctx, m.c, *m.told)
		case m.stream:
			note(m.ctx, m.c, usage{m.c.prompt, (m.deltas + bytesAToken - 1) / bytesAToken})
		}
	}
	return m.ReadCloser.Close()
}

// replaceBody puts a changed body into a request.
func replaceBody(r *http.Request, all map[string]json.RawMessage) error {
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
	return nil
}
