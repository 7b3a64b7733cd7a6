package console

import (
	"fmt"
	"html/template"
)

// table is a table for {{template "table" .}}. A caption is required: it is what screen readers say first.
type table struct {
	Caption string
	Hidden  bool // the caption is for screen readers only: a heading says the same
	Head    []column
	Rows    []row
	Empty   empty // shown instead of a table without rows
}

type column struct {
	Text  string
	Num   bool   // numbers: at the right, with digits of one width
	About string // what it is, shown by the browser over the head; "": plain
}

type row struct {
	ID    string // for a link to it, and so that live tables keep their rows; "" is none
	Class string // bad, warn, off: a mark at the left, never the only sign
	Cells []cell
}

// cell is a table's cell. Link makes a link of the text; Note is small, behind it.
type cell struct {
	Text string
	HTML template.HTML // instead of Text: of the functions of templates only
	Link string
	Note string
	Head bool   // it names the row
	Code bool   // in the font of code
	Tag  string // a pill instead of plain text: ok, warn, bad, unknown, or plain
}

// empty explains an empty table: why, and what would make something appear.
type empty struct{ Title, Text, Link, LinkText string }

func textCell(text string) cell { return cell{Text: orDash(text)} }

func numCell(n any) cell { return cell{Text: number(n)} }

func cellf(format string, args ...any) cell { return cell{Text: fmt.Sprintf(format, args...)} }
