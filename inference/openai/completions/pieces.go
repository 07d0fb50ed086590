package completions

import (
	"cmp"
	"slices"
	"strings"

	"turnkeeper/inference"
)

// Reasons for Response.Doubt.
const (
	doubtNameless = "a piece of a call has no name and fits no call"
	doubtSeveral  = "a piece fits more than one call"
	doubtKeys     = "the index and the id of a piece belong to different calls"
	doubtMixed    = "pieces with different ids have the same index"
	doubtRepeated = "a piece may repeat a call, or be another call"
	doubtEncoding = "the answer has bytes that are not UTF-8"
	doubtFinish   = "the finish reason is unknown: the answer may have been cut"
	doubtEnd      = "there is no finish reason: the answer may have been cut"
	doubtName     = "a piece may be the rest of a name, or another call"
)

// doubted records why the calls may not be those of the model.
func (a *answer) doubted(why string) { a.doubt = cmp.Or(a.doubt, why) }

// A match says how a piece was matched with calls.
type match int

const (
	byNothing match = iota // neither index nor id belong to a call
	byID
	byIndex
	byBoth
)

// A group is the calls that a piece may continue.
type group struct {
	calls  int
	newest *callParts // nil: none
	open   *callParts // the newest whose arguments can go on
	opens  int        // number of calls whose arguments can go on
}

func (g *group) add(c *callParts) {
	g.calls++
	if g.newest == nil {
		g.newest = c
	}
	if !c.scan.closed {
		g.opens++
		if g.open == nil {
			g.open = c
		}
	}
}

// addressed returns the calls with the index and the id of a piece, else those with its index, else those with its id,
// else those that have no other index.
func (a *answer) addressed(p *piece) (group, match) {
	var groups [byBoth + 1]group
	for i := len(a.arrived) - 1; i >= 0; i-- {
		call := a.arrived[i]
		indexed, named := p.index.ok && call.index.ok, p.id != "" && p.id == call.id
		switch {
		case indexed && p.index.n == call.index.n:
			groups[byIndex].add(call)
			if named {
				groups[byBoth].add(call)
			}
		case indexed:
			p.elsewhere = p.elsewhere || named
		case named:
			groups[byID].add(call)
		default:
			groups[byNothing].add(call)
		}
	}
	m := byBoth
	for m > byNothing && groups[m].newest == nil {
		m--
	}
	return groups[m], m
}

// continued returns the call that a piece continues, or nil for a new call. It sets a.doubt if it cannot know.
func (a *answer) continued(p *piece) *callParts {
	g, m := a.addressed(p)
	switch {
	case g.newest == nil:
		return nil
	case p.name == "":
		return a.nameless(p, g, m)
	default:
		return a.named(p, g, m)
	}
}

// nameless returns the call that a piece without a name continues.
func (a *answer) nameless(p *piece, g group, m match) *callParts {
	switch {
	case g.opens > 1, g.opens == 1 && g.open != g.newest:
		a.doubted(doubtSeveral)
		return g.open
	case g.opens == 1:
		if m == byIndex && p.elsewhere {
			a.doubted(doubtKeys)
		}
		if g.open.returnsTo(p.id) {
			a.doubted(doubtMixed)
		}
		return g.open
	case blank(string(p.args)), string(p.args) == g.newest.arguments.String():
		p.args, p.id = "", "" // it repeats what came before
		return g.newest
	}
	return nil // doubtful, unless its name follows
}

// named returns the call that a piece with a name continues.
func (a *answer) named(p *piece, g group, m match) *callParts {
	call := g.newest
	other := p.id != "" && call.id != "" && p.id != call.id
	switch {
	case call.name == "" && (m != byNothing || !other): // arguments came before the name
		if g.calls > 1 {
			a.doubted(doubtSeveral)
		}
		return call
	case p.name != call.name:
		return a.renamed(p, call, other)
	case call.scan.closed:
		return a.repeated(p, call, m, other)
	case other && (m == byNothing || blank(call.arguments.String())):
		return nil
	}
	if call.id+p.id == "" && blank(call.arguments.String()) {
		a.doubted(doubtSeveral)
	}
	if call.returnsTo(p.id) {
		a.doubted(doubtMixed)
	}
	return call
}

// renamed returns call if a piece with another name has the rest of its name, else nil.
func (a *answer) renamed(p *piece, call *callParts, other bool) *callParts {
	joined := call.name + p.name
	if other || call.announced || call.arguments.Len() > 0 || !a.beginsName(joined) {
		return nil
	}
	if a.declared[call.name] && a.beginsName(p.name) {
		a.doubted(doubtName)
		return nil
	}
	return call
}

// beginsName reports whether the name of a declared tool begins with a text.
func (a *answer) beginsName(text string) bool {
	for name := range a.declared {
		if strings.HasPrefix(name, text) {
			return true
		}
	}
	return false
}

// repeated returns call if a piece with its name repeats it, and nil if the piece begins another call of the tool.
func (a *answer) repeated(p *piece, call *callParts, m match, other bool) *callParts {
	empty, equal := blank(string(p.args)), string(p.args) == call.arguments.String()
	switch {
	case other:
		return nil
	case empty, equal && m != byNothing && call.id+p.id != "":
		if call.id+p.id == "" || m == byNothing {
			a.doubted(doubtRepeated)
		}
		p.args = ""
		return call
	}
	return nil
}

// unnamed is the name of a call without one.
const unnamed = "unnamed_call"

// settleDoubts sets a.doubt if the calls may not be those of the model, once all pieces have arrived.
func (a *answer) settleDoubts() {
	switch {
	case len(a.calls) == 0 || inference.FinishOf(a.finish) != inference.FinishUnknown:
	case a.finish != "":
		a.doubted(doubtFinish)
	case !a.done || slices.ContainsFunc(a.calls, func(c *callParts) bool { return !c.scan.closed }):
		a.doubted(doubtEnd)
	}
	for i, call := range a.arrived {
		empty := blank(call.arguments.String())
		switch {
		case call.name == "":
			call.name = unnamed
			a.doubted(doubtNameless)
		case call.streamed && a.inParts(i, empty):
			a.doubted(doubtName)
		case call.streamed && a.hasDouble(call, empty):
			a.doubted(doubtRepeated)
		}
	}
}

// inParts reports whether the name of the ith call to arrive may be a part of one.
func (a *answer) inParts(i int, empty bool) bool {
	call := a.arrived[i]
	after := a.arrived[i+1:]
	if !empty {
		after = after[:min(1, len(after))]
	}
	return slices.ContainsFunc(after, func(c *callParts) bool { return a.beginsName(call.name + c.name) }) ||
		slices.ContainsFunc(a.arrived[i+1:], func(c *callParts) bool { return call.renamedTo(c, empty) })
}

// renamedTo reports whether a later call with another name may be the call itself: their indexes do not tell them
// apart, and the call has no arguments yet, their ids are equal, or its name has grown.
func (c *callParts) renamedTo(later *callParts, empty bool) bool {
	if c.name == later.name || c.apartFrom(later) {
		return false
	}
	sameID := c.id != "" && c.id == later.id
	return empty || sameID || strings.HasPrefix(later.name, c.name) && (c.id == "" || later.id == "")
}

// apartFrom reports whether the indexes of two calls tell them apart.
func (c *callParts) apartFrom(other *callParts) bool {
	return c.index.ok && other.index.ok && c.index.n != other.index.n
}

// hasDouble reports whether a call may be a piece of another call of the tool, or that call again: both have the same
// arguments or one has none, and their indexes do not tell them apart.
func (a *answer) hasDouble(call *callParts, empty bool) bool {
	return slices.ContainsFunc(a.calls, func(c *callParts) bool {
		return c != call && c.name == call.name && (empty || c.arguments.String() == call.arguments.String()) &&
			!c.apartFrom(call)
	})
}

// takeID takes the id of a piece. The first one is the call's.
func (c *callParts) takeID(id string) {
	c.id = cmp.Or(c.id, id)
	latest := cmp.Or(c.latest, c.id)
	if id == "" || id == latest {
		return
	}
	if c.earlier == nil {
		c.earlier = map[string]bool{}
	}
	c.earlier[latest], c.latest = true, id
}

// returnsTo reports whether an id came before the newest id of a call. A server that makes a new id for each piece
// repeats none.
func (c *callParts) returnsTo(id string) bool { return c.earlier[id] }

func blank(text string) bool { return strings.Trim(text, " \t\r\n") == "" }

// A scan follows a JSON text, without checking it, to find the end of its first value.
type scan struct {
	depth           int
	quoted, escaped bool
	closed          bool // an object or array has ended
}

func (s *scan) add(text string) {
	for i := range len(text) {
		s.next(text[i])
	}
}

func (s *scan) next(b byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case b == '\\':
		s.escaped = true
	case b == '"':
		s.quoted = !s.quoted
	case s.quoted:
	case b == '{', b == '[':
		s.depth++
	case b == '}', b == ']':
		if s.depth--; s.depth <= 0 {
			s.closed = true
		}
	}
}
