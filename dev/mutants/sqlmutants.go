package main

import (
	"slices"
	"strings"
)

// A change replaces a part of a SQL text.
type change struct {
	start, end    int
	before, after string // as the report shows them
	text          string // what is put in place
	operator      string // of a sample
}

func (c change) apply(sql string) string { return sql[:c.start] + c.text + sql[c.end:] }

// mutateSQL makes the changes of a statement, or of a function with its head: each condition of a
// where, on, having, if, when, while or returned truth dropped, forced, or moved by its boundary.
func mutateSQL(sql string) []change {
	m := &sqlMutator{sqlSource: sqlSource{sql, sqlTokens(sql)}, seen: map[int]bool{}}
	m.truth = strings.Contains(strings.ToLower(sql), "returns boolean")
	for i := range m.tokens {
		if begin, end, ok := m.region(i); ok && begin < end {
			m.root(begin, end)
		}
	}
	return m.changes
}

type sqlToken struct {
	text       string // words in lower case
	start, end int
	depth      int
	searched   bool // within a case that has no value to compare
}

// A sqlSource is a SQL text with its tokens.
type sqlSource struct {
	sql    string
	tokens []sqlToken
}

// word returns the word at i; empty: there is none.
func (s *sqlSource) word(i int) string {
	if i < 0 || i >= len(s.tokens) {
		return ""
	}
	return s.tokens[i].text
}

type sqlMutator struct {
	sqlSource
	truth   bool // a function that returns a truth
	seen    map[int]bool
	changes []change
}

// sqlTokens returns the words, strings and signs of a text, without comments. The depth is one more
// in parentheses, and between case and its end.
func sqlTokens(sql string) (tokens []sqlToken) {
	var open []string
	for i := 0; i < len(sql); {
		n := tokenLength(sql[i:])
		if strings.HasPrefix(sql[i:], "--") || strings.TrimSpace(sql[i:i+n]) == "" {
			i += n
			continue
		}
		t := sqlToken{text: strings.ToLower(sql[i : i+n]), start: i, end: i + n}
		afterEnd := len(tokens) > 0 && tokens[len(tokens)-1].text == "end"
		closes := t.text == ")" || t.text == "end" && len(open) > 0 && strings.HasPrefix(open[len(open)-1], "case")
		if closes && len(open) > 0 {
			open = open[:len(open)-1]
		}
		if t.text == "when" && len(tokens) > 0 && tokens[len(tokens)-1].text == "case" && len(open) > 0 {
			open[len(open)-1] = "case when"
		}
		t.depth = len(open)
		t.searched = len(open) > 0 && open[len(open)-1] == "case when"
		tokens = append(tokens, t)
		if t.text == "(" || t.text == "case" && !afterEnd {
			open = append(open, t.text)
		}
		i += n
	}
	return tokens
}

func tokenLength(s string) int {
	end := func(from int, stop string) int {
		if n := strings.Index(s[from:], stop); n >= 0 {
			return from + n + len(stop)
		}
		return len(s)
	}
	word := func(c byte) bool {
		return c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	switch {
	case strings.HasPrefix(s, "--"):
		return end(0, "\n")
	case strings.HasPrefix(s, "$$"):
		return 2
	case s[0] == '\'':
		return end(1, "'")
	case s[0] == '$' || word(s[0]):
		n := 1
		for n < len(s) && word(s[n]) {
			n++
		}
		return n
	}
	for _, sign := range []string{"<=", ">=", "<>", "::", "->>", "->", "||", ":=", "<@", "@>"} {
		if strings.HasPrefix(s, sign) {
			return len(sign)
		}
	}
	return 1
}

var clauseEnds = []string{";", "$$", "group", "order", "limit", "for", "returning", "union", "having", "window",
	"then", "loop",
	"into", "intersect", "except", "offset", "on", "join", "left", "inner", "cross", "full", "where", "else", "when"}

// region returns the condition that begins after the word at i, as tokens from begin up to end.
func (m *sqlMutator) region(i int) (begin, end int, ok bool) {
	stops := m.stops(i)
	if stops == nil {
		return 0, 0, false
	}
	depth := m.tokens[i].depth
	for end = i + 1; end < len(m.tokens); end++ {
		t := m.tokens[end]
		calls := t.text == "left" && m.word(end+1) == "(" // the function, not the join
		if t.depth < depth || t.depth == depth && slices.Contains(stops, t.text) && !calls {
			break
		}
	}
	return i + 1, end, true
}

// stops returns the words that end the condition which the word at i begins, or nil if it begins none.
func (m *sqlMutator) stops(i int) []string {
	t, previous, next := m.tokens[i], m.word(i-1), m.word(i+1)
	among := func(word string, words ...string) bool { return slices.Contains(words, word) }
	begins := false
	stops := clauseEnds
	switch t.text {
	case "where", "having", "while":
		begins = true
	case "on":
		begins = !among(next, "conflict", "function", "table") && !among(previous, "update", "delete", "distinct")
	case "if", "elsif":
		begins, stops = previous != "end", []string{"then"}
	case "when":
		begins, stops = t.searched || among(previous, "exit", "continue"), []string{"then", ";"}
	case "return":
		begins, stops = m.truth && !among(next, "query", "next", ";", "true", "false"), []string{";", "$$"}
	case "then", "else":
		begins, stops = m.truth && t.searched && !among(next, "true", "false"), []string{"when", "else"}
	}
	if !begins {
		return nil
	}
	return stops
}

// split cuts a condition at the ands or ors of its top level: or binds less.
func (m *sqlMutator) split(begin, end int) (operator string, parts [][2]int) {
	depth := m.tokens[begin].depth
	for _, operator := range []string{"or", "and"} {
		parts, from, between := [][2]int(nil), begin, false
		for i := begin; i < end; i++ {
			t := m.tokens[i]
			switch {
			case t.depth != depth:
			case t.text == "between":
				between = true
			case t.text == "and" && between:
				between = false
			case t.text == operator:
				parts = append(parts, [2]int{from, i})
				from = i + 1
			}
		}
		if parts != nil {
			return operator, append(parts, [2]int{from, end})
		}
	}
	return "", [][2]int{{begin, end}}
}

func (m *sqlMutator) root(begin, end int) {
	if m.seen[begin] {
		return
	}
	m.seen[begin] = true
	operator, parts := m.split(begin, end)
	if operator == "" {
		m.leaf(begin, end, true, true)
		return
	}
	m.chain(operator, parts)
	m.force(begin, end, operator == "or")
}

func (m *sqlMutator) chain(operator string, parts [][2]int) {
	for _, part := range parts {
		m.leaf(part[0], part[1], operator == "and", operator == "or")
	}
}

func (m *sqlMutator) leaf(begin, end int, always, never bool) {
	from, to := begin, end
	if inside, ok := m.group(begin, end); ok {
		from, to = inside, end-1
	}
	operator, parts := m.split(from, to) // in parentheses, or ands between ors
	if operator != "" {
		m.chain(operator, parts)
	} else {
		m.list(begin, end)
	}
	if always {
		m.force(begin, end, true)
	}
	if never {
		m.force(begin, end, false)
	}
	m.boundary(begin, end)
}

// group reports whether a condition is in parentheses, possibly after a not, and where it begins in
// them.
func (m *sqlMutator) group(begin, end int) (inside int, ok bool) {
	if m.word(begin) == "not" {
		begin++
	}
	if m.word(begin) != "(" || m.word(begin+1) == "select" || m.word(begin+1) == "with" || begin+1 >= end-1 {
		return 0, false
	}
	for i := begin + 1; i < end-1; i++ {
		if m.tokens[i].depth <= m.tokens[begin].depth {
			return 0, false
		}
	}
	return begin + 1, m.word(end-1) == ")"
}

func (m *sqlMutator) bounds(begin, end int) (int, int) {
	return m.tokens[begin].start, m.tokens[end-1].end
}

// force makes a condition true or false. Its text stays, for the parameters in it.
func (m *sqlMutator) force(begin, end int, value bool) {
	start, stop := m.bounds(begin, end)
	before := m.sql[start:stop]
	after, text := "false", "(("+before+"\n) and false)"
	if value {
		after, text = "true", "(("+before+"\n) or true)"
	}
	m.changes = append(m.changes, change{start, stop, oneLine(before), after, text, ""})
}

func (m *sqlMutator) boundary(begin, end int) {
	other := map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
	for i := begin; i < end; i++ {
		t := m.tokens[i]
		if op, ok := other[t.text]; ok && t.depth == m.tokens[begin].depth {
			start, stop := m.bounds(begin, end)
			text := m.sql[start:t.start] + op + m.sql[t.end:stop]
			m.changes = append(m.changes, change{start, stop, oneLine(m.sql[start:stop]), oneLine(text), text, ""})
		}
	}
}

// list removes each text in turn from the list of an in condition.
func (m *sqlMutator) list(begin, end int) {
	for i := begin; i+3 < end; i++ {
		if m.word(i) != "in" || m.word(i+1) != "(" || m.word(i+3) != "," || !strings.HasPrefix(m.word(i+2), "'") {
			continue
		}
		for j := i + 2; strings.HasPrefix(m.word(j), "'"); j += 2 {
			from, to := m.tokens[j].start, m.tokens[j].end
			if m.word(j+1) == "," {
				to = m.tokens[j+1].end
			} else {
				from = m.tokens[j-1].start
			}
			start, stop := m.bounds(begin, end)
			text := m.sql[start:from] + m.sql[to:stop]
			m.changes = append(m.changes, change{start, stop, oneLine(m.sql[start:stop]), oneLine(text), text, ""})
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
