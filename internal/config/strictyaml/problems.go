package strictyaml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Problem is a fault of a file.
type Problem struct {
	Path string // path of the file
	Line int    // from 1; 0: the whole file
	Text string // what is wrong and what to do
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.Path, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text)
}

// Problems collects the faults of a file.
type Problems struct {
	Path string
	list []*Problem
}

// Add adds a fault.
func (p *Problems) Add(line int, format string, args ...any) {
	p.list = append(p.list, &Problem{Path: p.Path, Line: line, Text: fmt.Sprintf(format, args...)})
}

// AddSyntax adds an error of Parse.
func (p *Problems) AddSyntax(err error) {
	if e, ok := errors.AsType[*SyntaxError](err); ok {
		p.Add(e.Line, "%s", e.Text)
		return
	}
	p.Add(0, "%s", err)
}

// Any reports whether there is a fault.
func (p *Problems) Any() bool { return len(p.list) > 0 }

// Err returns the joined faults in the order of their lines, or nil. Each is a *Problem.
func (p *Problems) Err() error {
	return errors.Join(p.Errors()...)
}

// Errors returns the faults in the order of their lines.
func (p *Problems) Errors() []error {
	slices.SortStableFunc(p.list, func(a, b *Problem) int { return a.Line - b.Line })
	errs := make([]error, len(p.list))
	for i, problem := range p.list {
		errs[i] = problem
	}
	return errs
}

// Split returns the errors joined into err, or err itself if it is not joined; none for nil.
func Split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Fields calls each for the known keys of a mapping, in the order of the file, and adds a fault for each
// unknown or repeated key and each key without a value. where is the key of the mapping with a final
// dot; empty for the document.
func (p *Problems) Fields(where string, mapping *Node, known []string, each func(Field)) {
	if mapping.Kind != Map {
		p.Add(mapping.Line, "%s must be a mapping of keys to values, not %s", subject(where), mapping.Kind)
		return
	}
	first := map[string]int{}
	for _, field := range mapping.Fields {
		line, repeated := first[field.Key]
		switch {
		case !slices.Contains(known, field.Key):
			p.Add(field.Line, "unknown key %q%s", where+field.Key, suggestion(field.Key, known))
		case repeated:
			p.Add(field.Line, "key %q is already set on line %d", where+field.Key, line)
		case field.Value.Kind == Null:
			p.Add(field.Line, "key %q has no value: set it or remove the line", where+field.Key)
		default:
			each(field)
		}
		if !repeated {
			first[field.Key] = field.Line
		}
	}
}

func subject(where string) string {
	if where == "" {
		return "the settings"
	}
	return strings.TrimSuffix(where, ".")
}

// suggestion returns " (did you mean "x"?)" for the known word nearest to word, or "" if none is near.
func suggestion(word string, known []string) string {
	best := Nearest(word, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// Nearest returns the known word that is most similar to word, or "" if none is similar. Known words
// must be in lower case; the case of word is ignored.
func Nearest(word string, known []string) string {
	best, bestDistance := "", 1+max(1, min(3, len(word)/3))
	for _, candidate := range known {
		if d := distance(strings.ToLower(word), candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance returns the edit distance of a and b: insertions, deletions, replacements and swaps of
// adjacent bytes.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(replace, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
