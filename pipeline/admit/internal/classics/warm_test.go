package classics

import (
	"math"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// smoothWarmingUp is Guava's SmoothRateLimiter.SmoothWarmingUp, with a coldFactor of 3,
// tryAcquire() without a timeout.
type smoothWarmingUp struct{ stable, slope, threshold, most, coolDown, stored, next float64 }

func newSmoothWarmingUp(rate, warmup float64) *smoothWarmingUp {
	const cold = 3
	g := &smoothWarmingUp{stable: 1 / rate, threshold: 0.5 * warmup * rate}
	g.most = g.threshold + 2*warmup/(g.stable+cold*g.stable)
	g.slope = (cold - 1) * g.stable / (g.most - g.threshold)
	g.coolDown, g.stored = warmup/g.most, g.most
	return g
}

func (g *smoothWarmingUp) admit(at event.Micros, _ int64) bool {
	now := float64(at-ten) / 1e6
	if g.next > now {
		return false
	}
	g.stored = min(g.most, g.stored+(now-g.next)/g.coolDown)
	g.next = now + g.stable + max(g.stored-g.threshold, 0)*g.slope
	g.stored = max(g.stored-1, 0)
	return true
}

// warmUpController is Sentinel's, with a coldFactor of 3, over a window of one second.
type warmUpController struct {
	count, slope          float64
	warning, most, stored int64
	filled                int64 // s
	second, pass, before  int64
}

func newWarmUpController(count float64, seconds int64) *warmUpController {
	c := &warmUpController{count: count, warning: seconds * int64(count) / 2}
	c.most = c.warning + 2*seconds*int64(count)/4
	c.slope = 2 / count / float64(c.most-c.warning)
	return c
}

func (c *warmUpController) admit(at event.Micros, n int64) bool {
	now := int64(at / event.Second)
	if now != c.second {
		if c.before = 0; now == c.second+1 {
			c.before = c.pass
		}
		c.second, c.pass = now, 0
	}
	c.sync(now)
	most := c.count
	if c.stored >= c.warning {
		most = math.Nextafter(1/(float64(c.stored-c.warning)*c.slope+1/c.count), math.Inf(1))
	}
	if float64(c.pass+n) > most {
		return false
	}
	c.pass += n
	return true
}

func (c *warmUpController) sync(now int64) {
	if now <= c.filled {
		return
	}
	added := c.stored
	if c.stored < c.warning || c.stored > c.warning && c.before < int64(c.count)/3 {
		added += (now - c.filled) * int64(c.count)
	}
	c.stored, c.filled = max(0, min(added, c.most)-c.before), now
}

// warms compares what a flood gets in: while all is cold, once it is warm, and after as long
// without requests. In between the curves differ.
func warms(t *testing.T, ours, theirs limiter, off int) {
	t.Helper()
	a, b := perSecond(ours, ten, 25), perSecond(theirs, ten, 25)
	later := ten + 60*event.Second
	a, b = append(a, perSecond(ours, later, 25)...), append(b, perSecond(theirs, later, 25)...)
	for _, second := range []int{0, 15, 24, 25, 40, 49} {
		if d := a[second] - b[second]; d < -off || d > off {
			t.Errorf("second %d: %d, theirs %d", second, a[second], b[second])
		}
	}
	for _, second := range []int{0, 25} {
		if a[second] > 50 || a[second+15] < 95 {
			t.Errorf("second %d: %d are let in, and 15 s later %d", second, a[second], a[second+15])
		}
	}
	t.Logf("ours %v", a)
	t.Logf("theirs %v", b)
}

func guavaWarmsUp(t *testing.T, line string) {
	warms(t, newHere(t, line), newSmoothWarmingUp(100, 10), 5)
}

func sentinelWarmsUp(t *testing.T, line string) {
	warms(t, newHere(t, line), newWarmUpController(100, 10), 12)
}
