package layers

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A file has an arrow to another one of its package if it uses something that the other declares: a function, a type,
// a method, a field, a variable. Put the files in an order, users above what they use: the arrows that still run up
// are those along which a reader jumps back. The share measured is that of the best order, so that only circles of
// files count; orders that are merely good, such as one floor above the highest file used, have about twice as many.
var arrowsUp = measure{name: "arrows-up%", bar: 10, slack: 3, mend: "move what files below use into one of them"}

// Two arrows are free: in a package of a few files they are a large share of nothing.
const freeArrows = 2

func TestArrowsRunDown(t *testing.T) {
	share := map[string]int{}
	all := checked(t)
	for _, p := range all.packages {
		arrows, n := arrowsOf(all, p)
		if up := fewestUp(arrows); up > freeArrows {
			share[p.folder] = (100*up + n - 1) / n
		} else {
			share[p.folder] = 0
		}
	}
	arrowsUp.hold(t, share)
}

// arrowsOf returns which file of a package uses which, and how many such pairs there are.
func arrowsOf(all *typed, p typedPackage) (arrows [][]bool, n int) {
	number := map[string]int{}
	for i, f := range p.files {
		number[all.fset.Position(f.Package).Filename] = i
		arrows = append(arrows, make([]bool, len(p.files)))
	}
	for name, object := range p.info.Uses {
		if object.Pkg() != p.types {
			continue
		}
		from, to := number[all.fset.Position(name.Pos()).Filename], number[all.fset.Position(object.Pos()).Filename]
		if from != to && !arrows[from][to] {
			arrows[from][to] = true
			n++
		}
	}
	return arrows, n
}

// fewestUp returns how many arrows run up in the best order that is found: from some orders, always the same, each
// file is moved to its best place until none has a better one.
func fewestUp(arrows [][]bool) int {
	random := rand.New(rand.NewPCG(1, 2))
	best := len(arrows) * len(arrows)
	for range 20 {
		order := random.Perm(len(arrows))
		for better := true; better; {
			better = false
			for file := range arrows {
				better = settle(arrows, order, file) || better
			}
		}
		best = min(best, countUp(arrows, order))
	}
	return best
}

// settle moves a file of the order to where the fewest arrows run up, and reports whether that are fewer than before.
func settle(arrows [][]bool, order []int, file int) bool {
	at := slices.Index(order, file)
	change, best, to := 0, 0, at
	try := func(place, passed, sign int) { // the file and one that it passes on its way change places
		if arrows[passed][file] {
			change -= sign
		}
		if arrows[file][passed] {
			change += sign
		}
		if change < best {
			best, to = change, place
		}
	}
	for i := at - 1; i >= 0; i-- {
		try(i, order[i], -1)
	}
	change = 0
	for i := at + 1; i < len(order); i++ {
		try(i, order[i], 1)
	}
	rest := slices.Delete(slices.Clone(order), at, at+1)
	copy(order, slices.Insert(rest, to, file))
	return best < 0
}

// countUp counts the arrows that run up in an order, whose first file is the top.
func countUp(arrows [][]bool, order []int) (n int) {
	for i, above := range order {
		for _, below := range order[i+1:] {
			if arrows[below][above] {
				n++
			}
		}
	}
	return n
}

func TestFewestUp(t *testing.T) {
	graph := func(n int, pairs ...[2]int) [][]bool {
		arrows := make([][]bool, n)
		for i := range arrows {
			arrows[i] = make([]bool, n)
		}
		for _, p := range pairs {
			arrows[p[0]][p[1]] = true
		}
		return arrows
	}
	for about, c := range map[string]struct {
		arrows [][]bool
		want   int
	}{
		"nothing":              {graph(3), 0},
		"a chain":              {graph(4, [2]int{3, 2}, [2]int{2, 0}, [2]int{0, 1}), 0},
		"a circle":             {graph(3, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 0}), 1},
		"two circles":          {graph(4, [2]int{0, 1}, [2]int{1, 0}, [2]int{1, 2}, [2]int{2, 3}, [2]int{3, 2}), 2},
		"all use one, it two":  {graph(4, [2]int{0, 3}, [2]int{1, 3}, [2]int{2, 3}, [2]int{3, 0}, [2]int{3, 1}), 2},
		"one closes 2 circles": {graph(4, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{3, 0}, [2]int{2, 0}, [2]int{0, 3}), 2},
	} {
		if got := fewestUp(c.arrows); got != c.want {
			t.Errorf("%s: %d arrows run up, want %d", about, got, c.want)
		}
	}
}
