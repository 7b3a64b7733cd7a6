package browsertest

import (
	"bytes"
	"flag"
	"image"
	"image/png"
	"os"
	"path/filepath"

	"github.com/chromedp/chromedp"
)

var rewrite = flag.Bool("rewrite-screenshots", false, "write the screenshots that tests expect")

const (
	pixelTolerance = 48   // of 255, in a colour: fonts are drawn a little differently elsewhere
	shareTolerance = 0.02 // of the pixels
)

// Screenshot is the whole page as a PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	return Get(p, chromedp.FullScreenshot(100))
}

// Golden compares the whole page with testdata/screenshots/NAME.png, with tolerance. With -rewrite-screenshots it
// writes the file. What differs is kept beside the test's temporary files, and named.
func (p *Page) Golden(name string) {
	p.t.Helper()
	got := p.Screenshot()
	file := filepath.Join("testdata", "screenshots", name+".png")
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o600); err != nil {
			p.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatalf("%v: -rewrite-screenshots writes it", err)
	}
	if share := differ(p, want, got); share > shareTolerance {
		kept := filepath.Join(os.TempDir(), "tallygate-"+name+".png")
		_ = os.WriteFile(kept, got, 0o600) // only for whoever looks
		p.t.Errorf("%s: %.1f %% of the pixels differ from %s; the page is in %s. If it is right, go test -rewrite-screenshots", name, share*100, file, kept)
	}
}

// differ is the share of pixels that are not alike; 1 if the sizes differ by more than a few lines of text.
func differ(p *Page, want, got []byte) float64 {
	p.t.Helper()
	a, errA := png.Decode(bytes.NewReader(want))
	b, errB := png.Decode(bytes.NewReader(got))
	if errA != nil || errB != nil {
		p.t.Fatalf("read the screenshots: %v, %v", errA, errB)
	}
	sa, sb := a.Bounds().Size(), b.Bounds().Size()
	if sa.X != sb.X || max(sa.Y, sb.Y)-min(sa.Y, sb.Y) > 60 {
		p.t.Logf("%v, and was %v", sb, sa)
		return 1
	}
	wrong, all := 0, sa.X*min(sa.Y, sb.Y)
	for y := range min(sa.Y, sb.Y) {
		for x := range sa.X {
			if !alike(a, b, x, y) {
				wrong++
			}
		}
	}
	return float64(wrong) / float64(all)
}

// alike reports whether a pixel is like one of its neighbours in the other picture.
func alike(a, b image.Image, x, y int) bool {
	for dy := -1; dy <= 1; dy++ {
		for dx := -1; dx <= 1; dx++ {
			if (image.Point{x + dx, y + dy}).In(b.Bounds()) && near(a, b, x, y, x+dx, y+dy) {
				return true
			}
		}
	}
	return false
}

func near(a, b image.Image, x, y, u, v int) bool {
	r1, g1, b1, _ := a.At(x, y).RGBA()
	r2, g2, b2, _ := b.At(u, v).RGBA()
	for _, d := range [][2]uint32{{r1, r2}, {g1, g2}, {b1, b2}} {
		if max(d[0], d[1])-min(d[0], d[1]) > pixelTolerance<<8 {
			return false
		}
	}
	return true
}
