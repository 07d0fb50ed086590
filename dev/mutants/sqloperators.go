package main

import (
	"regexp"
	"slices"
	"strings"
)

// The operators of a sample in SQL, with their weights (see goOperators).
var sqlOperators = map[string]int{
	"drop a column":    22,
	"drop a statement": 18,
	"zero a value":     10,
	"swap arguments":   10,
	"another variable": 10,
	"swap statements":  8,
	"move a limit":     10,
	"now for a time":   6,
	"drop a lock":      4,
	"drop an order":    2,
}

// A sqlFinder collects the changes of a statement, or of a function or view with its head.
type sqlFinder struct {
	sqlSource
	changes map[string][]change // by operator
}

// changesOf returns all changes that the operators of a sample make, by operator.
func changesOf(sql string) map[string][]change {
	f := &sqlFinder{sqlSource: sqlSource{sql, sqlTokens(sql)}, changes: map[string][]change{}}
	begin := f.begin()
	params := f.params(begin)
	for i := begin; i < len(f.tokens); i++ {
		f.set(i)
		f.insert(i)
		f.call(i)
		f.limit(i)
		f.time(i)
		f.lock(i)
		f.order(i)
		f.param(i, params)
	}
	f.view()
	f.statements(begin)
	return f.changes
}

// begin returns the index of the token after the head of a function.
func (f *sqlFinder) begin() int {
	if f.word(0) != "create" {
		return 0
	}
	for i := range f.tokens {
		if w := f.word(i); w == "$$" || w == "return" && f.tokens[i].depth == 0 || w == "as" &&
			slices.ContainsFunc(f.tokens[:i], func(t sqlToken) bool { return t.text == "view" }) {
			return i + 1
		}
	}
	return len(f.tokens)
}

// text returns the text of the tokens from begin up to end.
func (f *sqlFinder) text(begin, end int) string {
	return f.sql[f.tokens[begin].start:f.tokens[end-1].end]
}

func (f *sqlFinder) add(operator string, begin, end int, after, text string) {
	c := change{start: f.tokens[begin].start, end: f.tokens[end-1].end, before: oneLine(f.text(begin, end)),
		after: oneLine(after), text: text}
	f.changes[operator] = append(f.changes[operator], c)
}

// null replaces an expression by null, of its type. Its text stays, for the parameters in it.
func (f *sqlFinder) null(operator string, begin, end int, suffix string) {
	if f.word(begin) == "null" {
		return
	}
	f.add(operator, begin, end, "null", "case when false then ("+f.text(begin, end)+"\n) end"+suffix)
}

// items splits a list at its commas. It begins at begin, and ends before a word of stops or where its parentheses end.
func (f *sqlFinder) items(begin int, stops ...string) (items [][2]int, end int) {
	if begin >= len(f.tokens) {
		return nil, begin
	}
	depth, from := f.tokens[begin].depth, begin
	for end = begin; end < len(f.tokens); end++ {
		t := f.tokens[end]
		if t.depth < depth || t.depth == depth && slices.Contains(stops, t.text) {
			break
		}
		if t.depth == depth && t.text == "," {
			items = append(items, [2]int{from, end})
			from = end + 1
		}
	}
	if from < end {
		items = append(items, [2]int{from, end})
	}
	return items, end
}

// set drops an assignment of an update: the column keeps its value.
func (f *sqlFinder) set(i int) {
	if f.word(i) != "set" {
		return
	}
	table := f.updated(i)
	if table == "" {
		return
	}
	items, _ := f.items(i+1, "where", "from", "returning", ";", "$$")
	for _, item := range items {
		column := f.word(item[0])
		if item[1]-item[0] < 3 || f.word(item[0]+1) != "=" {
			continue
		}
		f.add("drop a column", item[0], item[1], "", column+" = case when true then "+table+"."+column+" else ("+f.text(
			item[0]+2, item[1])+"\n) end")
	}
}

// updated returns the name or alias of the table that the set at i updates.
func (f *sqlFinder) updated(i int) string {
	if f.word(i-1) == "update" { // on conflict do update
		for j := i; j >= 0; j-- {
			if f.word(j) == "insert" && f.word(j+1) == "into" {
				return f.alias(j + 2)
			}
		}
		return ""
	}
	for j := i - 1; j >= i-4 && j >= 0; j-- {
		if f.word(j) == "update" {
			return f.alias(j + 1)
		}
	}
	return ""
}

func (f *sqlFinder) alias(i int) string {
	next := f.word(i + 1)
	if next == "as" {
		return f.word(i + 2)
	}
	if next != "set" && next != "(" && !strings.HasPrefix(next, "select") && next != "values" {
		return next
	}
	_, name, _ := strings.Cut(f.word(i), ".")
	return name
}

// insert drops a column of an insert.
func (f *sqlFinder) insert(i int) {
	if f.word(i) != "insert" || f.word(i+1) != "into" {
		return
	}
	open := i + 3
	if f.word(open) == "as" {
		open += 2
	}
	if f.word(open) != "(" {
		return
	}
	columns, end := f.items(open + 1)
	var values [][2]int
	switch f.word(end + 1) {
	case "values":
		var close int
		if values, close = f.items(end + 3); f.word(close+1) == "," {
			return // several rows
		}
	case "select":
		values, _ = f.items(end+2, "from", "where", "on", "returning", ";", "union", "$$", "order", "limit", "group")
	}
	if len(columns) != len(values) {
		return
	}
	for _, v := range values {
		f.null("drop a column", v[0], v[1], "")
	}
}

// view drops the value of a column of a view.
func (f *sqlFinder) view() {
	at := slices.IndexFunc(f.tokens, func(t sqlToken) bool { return t.text == "view" })
	if f.word(0) != "create" || at < 0 || at > 4 {
		return
	}
	for i := at; i < len(f.tokens); i++ {
		if f.word(i) == "select" && f.tokens[i].depth == 0 {
			items, _ := f.items(i+1, "from")
			for _, item := range items {
				f.viewColumn(item[0], item[1])
			}
			return
		}
	}
}

func (f *sqlFinder) viewColumn(begin, end int) {
	name := f.word(end - 1)
	if end-begin > 1 && f.word(end-2) == "as" {
		f.null("drop a column", begin, end-2, "")
		return
	}
	if end-begin == 1 && !strings.HasSuffix(name, "*") {
		f.null("drop a column", begin, end, " as "+name[strings.LastIndex(name, ".")+1:])
	}
}

var notCalled = []string{"in", "values", "exists", "as", "using", "over", "filter", "any", "all", "and", "or", "not",
	"on", "when", "then", "else", "where",
	"select", "from", "join", "lateral", "conflict", "distinct", "returning", "set", "if", "array", "row", "by",
	"return", "union", "case", "cast", "extract",
	"count", "greatest", "least", "key", "index", "check", "unique", "numeric", "varchar", "char", "with",
	"materialized", "elsif", "while", "is", "between"}

// call makes the changes of a function call's arguments.
func (f *sqlFinder) call(i int) {
	name := f.word(i)
	if f.word(i+1) != "(" || f.word(i+2) == ")" || !word.MatchString(name) || slices.Contains(notCalled, name) ||
		f.word(i-1) == "into" || f.word(i-1) == "," && f.word(i-2) == ")" {
		return
	}
	if i+1 < len(f.tokens) && f.tokens[i].end != f.tokens[i+1].start { // such as a list of columns
		return
	}
	items, _ := f.items(i+2, "order", "from", "select")
	for n, item := range items {
		if named := item[1]-item[0] > 2 && f.word(item[0]+1) == "=" && f.word(item[0]+2) == ">"; named {
			f.null("zero a value", item[0]+3, item[1], "")
			continue
		}
		if w := f.word(item[0]); w == "*" || w == "distinct" || w == "variadic" {
			continue
		}
		f.null("zero a value", item[0], item[1], "")
		if n == 0 {
			continue
		}
		a, b := items[n-1], item
		x, y := f.text(a[0], a[1]), f.text(b[0], b[1])
		if x != y && !strings.HasPrefix(x, "'") { // names of fields
			f.add("swap arguments", a[0], b[1], y+", "+x, y+", "+x)
		}
	}
}

var (
	word   = regexp.MustCompile(`^[a-z_][a-z0-9_.]*$`)
	digits = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
)

// limit moves a number or a comparison by one.
func (f *sqlFinder) limit(i int) {
	other := map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
	w := f.word(i)
	switch {
	case other[w] != "" && f.word(i-1) != "=":
		f.add("move a limit", i, i+1, other[w], other[w])
	case digits.MatchString(w) && f.word(i-1) != "by" && f.word(i-1) != "[" && f.word(i-1) != "numeric":
		f.add("move a limit", i, i+1, w+" + 1", "("+w+" + 1)")
	}
}

// time takes the database's time where a record's time is compared or counted from, and an hour more for the database's
// time.
func (f *sqlFinder) time(i int) {
	w := f.word(i)
	signs := []string{"<", ">", "<=", ">=", "+", "-"}
	switch {
	case word.MatchString(w) && strings.HasSuffix(w, "_at") && (slices.Contains(signs, f.word(i-1)) || slices.Contains(
		signs, f.word(i+1))):
		f.add("now for a time", i, i+1, "now()", "now()")
	case (w == "now" || w == "clock_timestamp" || w == "statement_timestamp") && f.word(i+1) == "(" &&
		f.word(i+2) == ")":
		f.add("now for a time", i, i+3, w+"() + 1 h", "("+w+"() + interval '1 hour')")
	}
}

// lock drops the lock of the rows that a query reads.
func (f *sqlFinder) lock(i int) {
	if f.word(i) != "for" || !slices.Contains([]string{"update", "no", "share", "key"}, f.word(i+1)) {
		return
	}
	end := i + 1
	for slices.Contains([]string{"no", "key", "update", "share", "of", "skip", "locked", "nowait"}, f.word(end)) ||
		f.word(end-1) == "of" {
		end++
	}
	f.add("drop a lock", i, end, "", "")
}

// order drops the order of a result.
func (f *sqlFinder) order(i int) {
	if f.word(i) != "order" || f.word(i+1) != "by" {
		return
	}
	_, end := f.items(i+2, "limit", "for", "loop", ";", "$$", "offset", "rows", "range")
	if end > i+2 {
		f.add("drop an order", i, end, "", "")
	}
}

var parameter = regexp.MustCompile(`\b(p_\w+) (\w+(?:\[\])?)`)

// params returns for each parameter of a function the one before it of its type.
func (f *sqlFinder) params(begin int) map[string]string {
	if begin == 0 || begin >= len(f.tokens) {
		return nil
	}
	other, last := map[string]string{}, map[string]string{}
	for _, p := range parameter.FindAllStringSubmatch(strings.ToLower(f.sql[:f.tokens[begin].start]), -1) {
		if before := last[p[2]]; before != "" {
			other[p[1]] = before
			if other[before] == "" {
				other[before] = p[1]
			}
		}
		last[p[2]] = p[1]
	}
	return other
}

// param takes another parameter of the same type, and the old row for the new one.
func (f *sqlFinder) param(i int, other map[string]string) {
	w := f.word(i)
	if instead := other[w]; instead != "" {
		f.add("another variable", i, i+1, instead, instead)
	}
	if field, ok := strings.CutPrefix(w, "new."); ok && f.word(i+1) != ":=" && strings.Contains(f.sql, "old.") {
		f.add("another variable", i, i+1, "old."+field, "old."+field)
	}
}

var statementStarts = []string{"perform", "insert", "update", "delete", "with"}

// statements drops each plain statement of a function, and swaps neighbours.
func (f *sqlFinder) statements(begin int) {
	if !slices.ContainsFunc(f.tokens[:min(begin, len(f.tokens))], func(t sqlToken) bool {
		return t.text == "plpgsql"
	}) {
		return
	}
	last, body := [2]int{}, false
	for i := begin; i < len(f.tokens); i++ {
		body = body || f.word(i) == "begin"
		if !body || f.tokens[i].depth != 0 || !slices.Contains([]string{";", "then", "else", "loop", "begin"},
			f.word(i-1)) || f.tokens[i-1].depth != 0 {
			continue
		}
		assigned := f.word(i+1) == ":="
		selects := f.word(i) == "select" && f.into(i)
		if !assigned && !selects && !slices.Contains(statementStarts, f.word(i)) {
			continue
		}
		end := i
		for end < len(f.tokens) && (f.word(end) != ";" || f.tokens[end].depth != 0) {
			end++
		}
		if end == len(f.tokens) {
			return
		}
		f.add("drop a statement", i, end+1, "", "if false then "+f.text(i, end+1)+"\nend if;")
		if last[1] == i && !f.commute(last, [2]int{i, end + 1}) {
			a, b := f.text(last[0], last[1]), f.text(i, end+1)
			f.add("swap statements", last[0], end+1, b+" "+a, b+"\n"+a)
		}
		last = [2]int{i, end + 1}
	}
}

// commute reports whether the order of two statements certainly does not matter: none mentions a variable that the
// other one sets or a table from which it deletes, and a variable is not set from a function of the schema, which may
// do anything.
func (f *sqlFinder) commute(a, b [2]int) bool {
	first, ok := f.sets(a)
	second, also := f.sets(b)
	return ok && also && !f.mentions(b, first) && !f.mentions(a, second)
}

// sets returns the variable that a statement sets or the table from which it deletes. ok is false if it may do anything
// else.
func (f *sqlFinder) sets(s [2]int) (name string, ok bool) {
	for i := s[0]; i < s[1]; i++ {
		if strings.HasPrefix(f.word(i), "turnkeeper.") && f.word(i+1) == "(" && f.tokens[i].end == f.tokens[i+1].start {
			return "", false
		}
	}
	switch {
	case f.word(s[0]+1) == ":=":
		return f.word(s[0]), true
	case f.word(s[0]) == "delete" && f.word(s[0]+1) == "from":
		return f.word(s[0] + 2), true
	}
	return "", false
}

func (f *sqlFinder) mentions(s [2]int, name string) bool {
	for i := s[0]; i < s[1]; i++ {
		if w := f.word(i); w == name || strings.HasPrefix(w, name+".") || strings.HasPrefix(name, w+".") {
			return true
		}
	}
	return false
}

// into reports whether the select at i sets variables.
func (f *sqlFinder) into(i int) bool {
	for ; i < len(f.tokens) && f.word(i) != ";"; i++ {
		if f.word(i) == "into" {
			return true
		}
	}
	return false
}
