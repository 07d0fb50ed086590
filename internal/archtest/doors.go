package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Doors are the packages that may import a library, by library.
type Doors map[string][]string

// ParseDoors parses the notation explained in doors.txt.
func ParseDoors(text string) (Doors, error) {
	doors := Doors{}
	for _, statement := range statements(text) {
		library, users, ok := strings.Cut(statement, ":")
		if !ok {
			return nil, fmt.Errorf("%q has no colon", statement)
		}
		library = strings.TrimSpace(library)
		if _, again := doors[library]; again {
			return nil, fmt.Errorf("%s is named twice", library)
		}
		list, err := nameList(users)
		if err != nil {
			return nil, fmt.Errorf("in %q: %w", statement, err)
		}
		doors[library] = list
	}
	return doors, nil
}

// complaint returns what is wrong with the import of a library; empty: nothing.
func (d Doors) complaint(name, library string, inTest bool) string {
	users, ok := d.users(library)
	if !ok {
		if isStandard(library) {
			return ""
		}
		return "has no door: name the packages that may use it in doors.txt"
	}
	if slices.Contains(users, all) || slices.Contains(users, name) || inTest && slices.Contains(users, test) {
		return ""
	}
	return "may be imported only by " + strings.Join(users, ", ")
}

// users returns the packages of the longest line that matches a library.
func (d Doors) users(library string) ([]string, bool) {
	for path := library; ; {
		if users, ok := d[path]; ok {
			return users, true
		}
		cut := strings.LastIndexByte(path, '/')
		if cut < 0 {
			return nil, false
		}
		path = path[:cut]
	}
}

// isStandard reports whether a package is of the standard library: its path has no host name.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
