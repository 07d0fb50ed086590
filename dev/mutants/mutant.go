package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"turnkeeper/internal/chosen"
)

const (
	chosenVariable  = chosen.Variable
	reachVariable   = chosen.ReachVariable
	equivalentsFile = "dev/mutants/equivalent.txt"
)

// A Mutant is one planted bug.
type Mutant struct {
	ID            int
	File          string
	Line          int
	Function      string // or query
	Before, After string
	Operator      string // of a sample; empty: a condition is dropped, forced or moved
	Again         int    // index among mutants with the same text; 0: the first

	Query    string // the query that Text replaces
	Schema   string // the function of the schema that Text replaces
	Text     string
	verdict  verdict
	noticed  string // the test that failed
	reaching []*test
}

// Key names a mutant in equivalent.txt. It has no line number, so it stays valid when lines move.
func (m Mutant) Key() string {
	key := fmt.Sprintf("%s %s: %s -> %s", m.File, m.Function, m.Before, m.After)
	if m.Operator != "" {
		key = fmt.Sprintf("%s %s: %s: %s -> %s", m.File, m.Function, m.Operator, m.Before, m.After)
	}
	if m.Again > 0 {
		key += fmt.Sprintf(" (%d)", m.Again+1)
	}
	return key
}

func (m Mutant) String() string {
	s := fmt.Sprintf("%s:%d %s", m.File, m.Line, m.Function)
	if m.Operator != "" {
		s += ": " + m.Operator
	}
	if m.Again > 0 {
		s += fmt.Sprintf(" (%d)", m.Again+1)
	}
	return s + "\n\t- " + m.Before + "\n\t+ " + m.After
}

type verdict int

const (
	survived verdict = iota
	killed
	invalid
	equivalent
	unreached
)

func (v verdict) String() string {
	return [...]string{"survived", "killed", "invalid", "equivalent", "unreached"}[v]
}

// number numbers mutants with the same text, to tell them apart.
func number(mutants []Mutant) {
	seen := map[string]int{}
	for i := range mutants {
		key := mutants[i].Key()
		mutants[i].Again = seen[key]
		seen[key]++
	}
}

// readEquivalents reads the mutants that behave like the original: a line with the key of each, and
// an indented line with the reason.
func readEquivalents(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reasons, key, n := map[string]string{}, "", 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		n++
		line := lines.Text()
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t"):
			if key == "" {
				return nil, fmt.Errorf("%s:%d: a reason without a mutant", path, n)
			}
			reasons[key] = strings.TrimSpace(reasons[key] + " " + strings.TrimSpace(line))
		default:
			if key != "" && reasons[key] == "" {
				return nil, fmt.Errorf("%s:%d: the mutant above has no reason", path, n)
			}
			if _, twice := reasons[line]; twice {
				return nil, fmt.Errorf("%s:%d: the mutant is listed twice", path, n)
			}
			key = line
			reasons[key] = ""
		}
	}
	if key != "" && reasons[key] == "" {
		return nil, fmt.Errorf("%s:%d: the mutant above has no reason", path, n)
	}
	return reasons, lines.Err()
}
