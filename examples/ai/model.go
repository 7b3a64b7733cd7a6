package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// fakeModel answers as a model does, a word at a time: as many words as max_tokens says, but at most as many as the
// last message asks for, as in "say 12 words". A word is a token.
func fakeModel(pause time.Duration) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Model     string `json:"model"`
			Stream    bool   `json:"stream"`
			MaxTokens int64  `json:"max_tokens"`
			Messages  []struct {
				Content string `json:"content"`
			} `json:"messages"`
			Options struct {
				Usage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Messages) == 0 {
			refuse(w, http.StatusBadRequest, "invalid_request_error", "messages are missing")
			return
		}
		var words int64 = 10
		last := q.Messages[len(q.Messages)-1].Content
		_, _ = fmt.Sscanf(last, "say %d words", &words)
		u := usage{int64(len(strings.Fields(last))), min(words, q.MaxTokens)}
		if !q.Stream {
			answer := map[string]any{"role": "assistant", "content": strings.Repeat("word ", int(u.Completion))}
			w.Header().Set("Content-Type", "application/json")
			choices := []any{map[string]any{"index": 0, "message": answer, "finish_reason": "stop"}}
			_ = json.NewEncoder(w).Encode(map[string]any{"model": q.Model, "usage": u, "choices": choices})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(choices []any, u *usage) bool {
			text, _ := json.Marshal(map[string]any{"model": q.Model, "choices": choices, "usage": u})
			_, err := fmt.Fprintf(w, "data: %s\n\n", text)
			return err == nil && http.NewResponseController(w).Flush() == nil
		}
		for range u.Completion {
			if !send([]any{map[string]any{"index": 0, "delta": map[string]any{"content": "word "}}}, nil) {
				return
			}
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
		}
		if q.Options.Usage {
			send([]any{}, &u)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	return mux
}
