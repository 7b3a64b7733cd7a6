// Package browsertest opens the console's pages in Chromium, without a screen, for tests: what a reader sees,
// whether everybody can use it, how much comes over the wire and how soon something is seen.
package browsertest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// within bounds each page: a test opens as many as it needs, on a machine of any speed.
const within = 3 * time.Minute

// Browser is a Chromium of the test's own.
type Browser struct {
	t   testing.TB
	ctx context.Context
}

// Start starts Chromium, in the suite browsers: a missing Chromium is an error there.
func Start(t testing.TB) *Browser {
	t.Helper()
	servers.Nightly(t, "browsers")
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("no-first-run", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("font-render-hinting", "none"), chromedp.UserDataDir(t.TempDir()))
	allocated, free := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // it waits until Chromium has ended
		end()
		free()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return &Browser{t: t, ctx: ctx}
}

// Look sets the size, the colours and the scale of a page. The zero value is a light page of 1280 by 900.
type Look struct {
	Width, Height int64
	Dark          bool
	Phone         bool // 390 by 844, at a phone's density
	NoScript      bool
	Token         string // to log in with first; "": as who needs none
	Zone          string // of the reader, such as Asia/Shanghai; "": UTC
}

// Page is an open page. Console errors and what the content security policy refuses fail the test at its end.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu    sync.Mutex
	bytes int64
	wrong []string
}

// Open opens an address in a tab of its own, and waits until it is loaded.
func (b *Browser) Open(address string, look Look) *Page {
	b.t.Helper()
	p := &Page{t: b.t}
	limited, cancel := context.WithTimeout(b.ctx, within)
	ctx, end := chromedp.NewContext(limited, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx = ctx
	b.t.Cleanup(func() {
		end()
		cancel()
		for _, wrong := range p.Wrong() {
			b.t.Errorf("%s: %s", address, wrong)
		}
	})
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	look.set(p)
	if look.Token != "" {
		p.logIn(address, look.Token)
	}
	p.Run(chromedp.Navigate(address))
	return p
}

// logIn sends the console's form.
func (p *Page) logIn(address, token string) {
	p.t.Helper()
	site := address
	if i := strings.Index(address, "://"); i >= 0 {
		if slash := strings.Index(address[i+3:], "/"); slash >= 0 {
			site = address[:i+3+slash]
		}
	}
	field := chromedp.CSS("#token")
	p.Run(chromedp.Navigate(site+"/login"), chromedp.SetValue(field, token), chromedp.Submit(field), chromedp.WaitVisible(chromedp.CSS("nav li")))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes = 0
}

func (l Look) set(p *Page) {
	p.t.Helper()
	width, height, density := int64(1280), int64(900), 1.0
	if l.Phone {
		width, height, density = 390, 844, 2
	}
	if l.Width > 0 {
		width, height = l.Width, l.Height
	}
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: density, Mobile: l.Phone})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
	call(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: cmp.Or(l.Zone, "UTC")})
	call(p, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en-GB"})
	if l.NoScript {
		call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	}
}

// call runs a command of the browser's protocol.
func call[P, R any](p *Page, command cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.t.Fatal(err)
	}
}

// listen notes what goes over the wire, and what the page complains about.
func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventLoadingFinished:
		p.bytes += int64(e.EncodedDataLength)
	case *runtime.EventExceptionThrown:
		p.wrong = append(p.wrong, "a script fails: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.wrong = append(p.wrong, "the browser says: "+e.Entry.Text+" "+e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		p.wrong = append(p.wrong, "a dialog opens: "+e.Message)
	}
}

// Run does something on the page.
func (p *Page) Run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// Context is the page's, for what waits.
func (p *Page) Context() context.Context { return p.ctx }

// Wrong returns what was wrong so far, and forgets it: a test that expects some looks itself.
func (p *Page) Wrong() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.wrong
	p.wrong = nil
	return all
}

// Bytes counts the bytes over the wire for the page so far, headers included; not those still being streamed.
func (p *Page) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Text returns the page's visible text.
func (p *Page) Text() string {
	p.t.Helper()
	return Get(p, chromedp.Text(chromedp.CSS("body")))
}

// Get does something on the page that has a result.
func Get[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// FirstPaint returns the time from the request until something was seen.
func (p *Page) FirstPaint() time.Duration {
	p.t.Helper()
	ms := Get(p, chromedp.Poll[float64](`performance.getEntriesByName("first-contentful-paint")[0]?.startTime`, chromedp.WithPollingInterval(20*time.Millisecond)))
	return time.Duration(ms * float64(time.Millisecond))
}

// script is the path of a file in scripts.
func script(name string) (string, error) {
	folder, err := os.Getwd()
	for err == nil {
		path := filepath.Join(folder, "scripts", name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if up := filepath.Dir(folder); up != folder {
			folder = up
			continue
		}
		return "", os.ErrNotExist
	}
	return "", err
}
