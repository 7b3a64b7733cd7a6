package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var staticFiles embed.FS

const assetsPath = "/static/"

// assets are the static files. An address has the file's hash, so that browsers keep it for good.
type assets struct {
	byAddress map[string]*asset
	addresses map[string]string // by name
}

type asset struct {
	kind    string
	content []byte
	zipped  func() []byte // made once
}

var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func newAssets() (*assets, error) {
	a := &assets{map[string]*asset{}, map[string]string{}}
	err := fs.WalkDir(staticFiles, "static", func(file string, d fs.DirEntry, err error) error {
		kind := kinds[path.Ext(file)]
		if err != nil || d.IsDir() || kind == "" {
			return err
		}
		content, err := staticFiles.ReadFile(file)
		if err != nil {
			return err
		}
		hash := sha256.Sum256(content)
		name := path.Base(file)
		address := assetsPath + hex.EncodeToString(hash[:6]) + "/" + name
		a.addresses[name] = address
		a.byAddress[address] = &asset{kind, content, sync.OnceValue(func() []byte { return zip(content) })}
		return nil
	})
	return a, err
}

func zip(content []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = z.Write(content)                               // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

// warm compresses all of them, so that no reader waits for it.
func (a *assets) warm() {
	for _, f := range a.byAddress {
		f.zipped()
	}
}

// address returns a file's path on the server.
func (a *assets) address(name string) (string, error) {
	if at, ok := a.addresses[name]; ok {
		return at, nil
	}
	return "", fmt.Errorf("there is no static file %s", name)
}

func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.byAddress[r.URL.Path]
	if !ok || strings.Contains(r.URL.Path, "..") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Add("Vary", "Accept-Encoding")
	content := f.content
	if takesGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		content = f.zipped()
	}
	_, _ = w.Write(content)
}
