package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// readerNames are the functions that decode or read a whole text, by package.
var readerNames = map[string][]string{
	"encoding/json": {"Unmarshal", "NewDecoder"}, "io": {"ReadAll"}, "os": {"ReadFile"},
	"github.com/modelcontextprotocol/go-sdk/jsonrpc": {"DecodeMessage"},
	"github.com/goccy/go-yaml":                       {"Unmarshal", "NewDecoder"},
	"github.com/goccy/go-yaml/parser":                {"Parse", "ParseBytes", "ParseFile"},
	"github.com/goccy/go-yaml/lexer":                 {"Tokenize"},
}

// readsNothing are the packages that read no data from outside: test programs and tools of development.
var readsNothing = []string{"tests", "examples", "internal/archtest", "internal/bench", "internal/golden",
	"dev/mutants", "internal/pgdev", "internal/testrun"}

func isExempt(name string) bool {
	return strings.HasSuffix(name, "test") || slices.ContainsFunc(readsNothing, func(p string) bool {
		return name == p || strings.HasPrefix(name, p+"/")
	})
}

// Reads counts the uses of readerNames by file.
func Reads(packages []Package) (map[string]int, error) {
	found := map[string]int{}
	for _, p := range packages {
		name := nameOf(p.ImportPath)
		if isExempt(name) {
			continue
		}
		for _, file := range p.GoFiles {
			n, err := readsIn(filepath.Join(p.Dir, file))
			if err != nil {
				return nil, err
			}
			if n > 0 {
				found[path.Join(name, file)] = n
			}
		}
	}
	return found, nil
}

func readsIn(file string) (n int, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return 0, err
	}
	imported := map[string]string{}
	for _, i := range parsed.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(from)
		if i.Name != nil {
			name = i.Name.Name
		} else if name == "go-yaml" {
			name = "yaml"
		}
		imported[name] = from
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		if s, ok := node.(*ast.SelectorExpr); ok {
			if from, ok := s.X.(*ast.Ident); ok && slices.Contains(readerNames[imported[from.Name]], s.Sel.Name) {
				n++
			}
		}
		return true
	})
	return n, nil
}

// ParseReaders parses the notation explained in readers.txt.
func ParseReaders(text string) (map[string]int, error) {
	list := map[string]int{}
	for _, statement := range statements(text) {
		file, rest, _ := strings.Cut(statement, ":")
		number, reason, ok := strings.Cut(rest, ",")
		count, err := strconv.Atoi(strings.TrimSpace(number))
		if !ok || err != nil || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%q is not \"FILE: COUNT, REASON\"", statement)
		}
		list[file] = count
	}
	return list, nil
}

// CheckReaders returns a fault for each file with more reads than are allowed, and for each count that may shrink.
func CheckReaders(found, allowed map[string]int) (faults []string) {
	for _, file := range slices.Sorted(maps.Keys(found)) {
		if found[file] > allowed[file] {
			faults = append(faults,
				fmt.Sprintf(
					"%s decodes or reads a whole text in %d places, readers.txt allows %d: use package jsonlimit for data from outside",
					file, found[file], allowed[file]))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(allowed)) {
		if found[file] < allowed[file] {
			faults = append(faults, fmt.Sprintf("%s does so in %d places: write that in readers.txt instead of %d",
				file, found[file], allowed[file]))
		}
	}
	return faults
}
