package state

// refList is a list of chunks that grows by blocks. A slice would be copied as a whole from time to time: of a
// million changes that takes milliseconds, while no event is applied.
type refList struct {
	blocks []*refBlock
	len    int
}

const refsInBlock = 1 << 12

type refBlock [refsInBlock]Ref

// refBlocks are blocks to use again, up to a megabyte of them.
type refBlocks []*refBlock

const spareBlocks = 64

func (l *refList) add(ref Ref, spare *refBlocks) {
	if l.len == len(l.blocks)*refsInBlock {
		l.blocks = append(l.blocks, spare.take())
	}
	l.blocks[l.len/refsInBlock][l.len%refsInBlock] = ref
	l.len++
}

func (l *refList) at(i int) Ref { return l.blocks[i/refsInBlock][i%refsInBlock] }

// drop gives back the block that ends behind place i, if one does. What is in it must not be read again.
func (l *refList) drop(i int, spare *refBlocks) {
	if (i+1)%refsInBlock == 0 {
		spare.give(l.blocks[i/refsInBlock])
		l.blocks[i/refsInBlock] = nil
	}
}

// empty gives back what drop has not.
func (l *refList) empty(spare *refBlocks) {
	for _, b := range l.blocks {
		spare.give(b)
	}
	clear(l.blocks)
	l.blocks, l.len = l.blocks[:0], 0
}

func (s *refBlocks) take() *refBlock {
	if n := len(*s); n > 0 {
		b := (*s)[n-1]
		*s = (*s)[:n-1]
		return b
	}
	return new(refBlock)
}

func (s *refBlocks) give(b *refBlock) {
	if b != nil && len(*s) < spareBlocks {
		*s = append(*s, b)
	}
}

// Cut ends a generation of changes. The returned Cut has the blocks changed until now; later
// changes belong to the next one. The previous Cut must have been read to its end.
func (t *Table) Cut() *Cut {
	c := &Cut{table: t, gen: t.gen}
	t.gen = 3 - t.gen
	return c
}

// Cut is the blocks that had changed at one moment. A block that changes while the Cut is read is
// read once, in its newest form.
type Cut struct {
	table *Table
	gen   uint8
	next  int
}

// Len returns how many blocks are left to read, at most.
func (c *Cut) Len() int { return c.table.dirty[c.gen].len - c.next }

// cutAhead is the distance, in changes, at which a chunk is asked for before it is read: changes are in the order of
// events, and lie anywhere in memory.
const cutAhead = 8

// Next looks at the next change, and returns its block if that was not read yet; it treats it as copied. It
// returns 0 if there is nothing to copy: among a million changes that were all copied otherwise, to look for
// one that was not would take a tenth of a second. more is false at the end.
func (c *Cut) Next() (ref Ref, more bool) {
	t, list := c.table, &c.table.dirty[c.gen]
	if c.next == list.len {
		list.empty(&t.spare)
		c.next = 0
		return 0, false
	}
	ref = list.at(c.next)
	if later := c.next + cutAhead; later < list.len {
		later := t.heap.chunk(list.at(later))
		prefetch(&later[0], min(len(later), prefetchMost))
	}
	list.drop(c.next, &t.spare)
	c.next++
	if t.heap.chunk(ref)[offGen] != c.gen { // also of one that was freed
		return 0, true
	}
	t.Copied(ref)
	return ref, true
}

// Dirty returns the number of changes noted since the last Cut; a key may be counted twice.
func (t *Table) Dirty() int { return t.dirty[t.gen].len }
