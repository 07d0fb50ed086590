package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Keywords of the two files.
const (
	none = "NONE"
	test = "TEST"
	all  = "ANY"
)

// Order is the allowed order of packages.
type Order struct {
	below map[string][]string // package → the packages right below it
	tests []string            // packages that all tests may import
	shut  [][2]string         // pairs of packages of which the first must not import the second directly
}

// ParseOrder parses the notation explained in arrows.txt. Cycles, and arrows that a "!<" forbids, are
// errors.
func ParseOrder(text string) (*Order, error) {
	o := &Order{below: map[string][]string{}}
	var never [][2]string
	for _, statement := range statements(text) {
		if high, low, ok := strings.Cut(statement, "!>"); ok {
			pairs, err := product(high, low)
			if err != nil {
				return nil, fmt.Errorf("in %q: %w", statement, err)
			}
			o.shut = append(o.shut, pairs...)
			continue
		}
		if low, high, ok := strings.Cut(statement, "!<"); ok {
			pairs, err := product(low, high)
			if err != nil {
				return nil, fmt.Errorf("in %q: %w", statement, err)
			}
			never = append(never, pairs...)
			continue
		}
		chain := strings.Split(statement, "<")
		if len(chain) < 2 {
			return nil, fmt.Errorf("%q has no arrow", statement)
		}
		for i := range len(chain) - 1 {
			pairs, err := product(chain[i], chain[i+1])
			if err != nil {
				return nil, fmt.Errorf("in %q: %w", statement, err)
			}
			for _, pair := range pairs {
				o.add(pair[0], pair[1])
			}
		}
	}
	return o, o.verify(never)
}

func (o *Order) add(low, high string) {
	if high == test {
		o.tests = append(o.tests, low)
		return
	}
	if !o.Knows(high) {
		o.below[high] = nil
	}
	if low != none {
		o.below[high] = append(o.below[high], low)
	}
}

// verify checks an order for contradictions.
func (o *Order) verify(never [][2]string) error {
	for name := range o.below {
		if o.Above(name, name) {
			return fmt.Errorf("%s stands above itself", name)
		}
		for _, low := range o.below[name] {
			if !o.Knows(low) {
				return fmt.Errorf("%s stands below %s, and nothing says what it stands on: give it a line (NONE < %s)",
					low, name, low)
			}
		}
	}
	for _, pair := range o.shut {
		if !o.Above(pair[0], pair[1]) {
			return fmt.Errorf("a \"!>\" keeps %s from %s, which it does not stand above", pair[0], pair[1])
		}
	}
	for _, pair := range never {
		for _, name := range pair {
			if !o.Knows(name) {
				return fmt.Errorf("a \"!<\" names %s, which no arrow knows", name)
			}
		}
		if o.Above(pair[0], pair[1]) {
			return fmt.Errorf("%s stands above %s, which a \"!<\" forbids", pair[0], pair[1])
		}
	}
	return nil
}

// Knows reports whether a package is in the order.
func (o *Order) Knows(name string) bool {
	_, ok := o.below[name]
	return ok
}

// Above reports whether a package may import another.
func (o *Order) Above(high, low string) bool {
	seen := map[string]bool{}
	var reach func(string) bool
	reach = func(name string) bool {
		for _, next := range o.below[name] {
			if next == low {
				return true
			}
			if !seen[next] {
				seen[next] = true
				if reach(next) {
					return true
				}
			}
		}
		return false
	}
	return reach(high)
}

// forTests reports whether the tests of every package may import a package.
func (o *Order) forTests(name string) bool { return slices.Contains(o.tests, name) }

// statements splits a text at semicolons and removes comments.
func statements(text string) []string {
	var plain strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		plain.WriteString(strings.TrimSpace(line) + " ")
	}
	var found []string
	for statement := range strings.SplitSeq(plain.String(), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			found = append(found, statement)
		}
	}
	return found
}

// product pairs each name of one list with each of another.
func product(low, high string) ([][2]string, error) {
	lows, err := nameList(low)
	if err != nil {
		return nil, err
	}
	highs, err := nameList(high)
	if err != nil {
		return nil, err
	}
	var pairs [][2]string
	for _, l := range lows {
		for _, h := range highs {
			pairs = append(pairs, [2]string{l, h})
		}
	}
	return pairs, nil
}

func nameList(text string) ([]string, error) {
	var list []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" || strings.ContainsAny(name, " \t!<>:") {
			return nil, fmt.Errorf("%q is no name of a package", name)
		}
		list = append(list, name)
	}
	return list, nil
}
