// Command app is a service that knows nothing of Tallygate, for the proxies of this folder to stand in
// front of: it answers every request. POST /v1/chat/completions answers as a language model does, which
// uses 700 tokens for each.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "where the app listens")
	flag.Parse()
	mux := http.NewServeMux()
	mux.HandleFunc("/", answer)
	mux.HandleFunc("POST /v1/chat/completions", complete)
	server := &http.Server{Addr: *listen, ReadHeaderTimeout: 5 * time.Second, Handler: mux}
	log.Fatal(server.ListenAndServe())
}

func answer(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "the app got %s %s\n", r.Method, r.URL.Path)
}

// complete tells the tokens as models do: in the answer's JSON, or in the last event of a stream. A header has it,
// too, as models of one's own may.
func complete(w http.ResponseWriter, r *http.Request) {
	const usage = `"usage":{"prompt_tokens":200,"completion_tokens":500,"total_tokens":700}`
	w.Header().Set("X-Used-Tokens", "700")
	asked, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if !strings.Contains(string(asked), `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"content":"one two"}}],%s}`+"\n", usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, data := range []string{
		`{"choices":[{"delta":{"content":"one "}}],"usage":null}`,
		`{"choices":[{"delta":{"content":"two"}}],"usage":null}`,
		`{"choices":[],` + usage + `}`,
		"[DONE]",
	} {
		fmt.Fprintf(w, "data: %s\n\n", data)
		_ = http.NewResponseController(w).Flush()
	}
}
