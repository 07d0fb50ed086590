package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Target is the code of a guard, and the packages whose tests must fail with its mutants.
type Target struct {
	Name      string
	Go        []Code   // conditions in Go
	Queries   []string // queries of storage/queries
	Functions []string // functions of the schema, as the last migration defines them
	Tests     []string // packages
	First     string   // tests to run first, even if others are faster; a regular expression
	Skip      string   // tests not to run; a regular expression
}

// Code is a Go file, or some of its functions.
type Code struct {
	File      string
	Functions []string
}

// A mutantSet holds the mutants of a target, and the files that replace originals in the build.
type mutantSet struct {
	root    string
	mutants []Mutant
	overlay map[string][]byte // by path from root
}

const queriesPackage = "storage/internal/dbsqlc"

// makeMutants makes the mutants of a target. refused has, by file, the lines whose mutants the compiler refused.
func makeMutants(root string, t Target, refused map[string]map[int]bool) (*mutantSet, error) {
	s := &mutantSet{root: root, overlay: map[string][]byte{}}
	byFolder := map[string]bool{}
	for _, code := range t.Go {
		byFolder[filepath.Dir(code.File)] = true
	}
	for folder := range byFolder { // one helper per package
		first, name := len(s.mutants)+1, ""
		for _, code := range t.Go {
			if filepath.Dir(code.File) != folder {
				continue
			}
			source, err := os.ReadFile(filepath.Join(root, code.File))
			if err != nil {
				return nil, err
			}
			rewritten, mutants, err := rewriteGo(code.File, source, code.Functions, len(s.mutants)+1,
				refused[code.File])
			if err != nil {
				return nil, err
			}
			s.overlay[code.File] = rewritten
			s.mutants = append(s.mutants, mutants...)
			name = packageClause.FindStringSubmatch(string(source))[1]
		}
		s.overlay[filepath.Join(folder, "mutants_.go")] = []byte(helper(name, first, len(s.mutants)))
	}
	conditions := func(_, text string) []change { return mutateSQL(text) }
	if err := s.addQueries(t.Queries, conditions); err != nil {
		return nil, err
	}
	if err := s.addFunctions(t.Functions, conditions); err != nil {
		return nil, err
	}
	number(s.mutants)
	return s, nil
}

var (
	packageClause = regexp.MustCompile(`(?m)^package (\w+)`)
	constant_     = regexp.MustCompile("(?s)const (\\w+) = (`-- name: .*?`)")
	use           = regexp.MustCompile(`(q\.db\.(?:Exec|Query|QueryRow)\(ctx, )(\w+)`)
)

// addQueries makes mutants of queries, and turns their constants into variables.
func (s *mutantSet) addQueries(names []string, changes func(name, text string) []change) error {
	if len(names) == 0 {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.root, queriesPackage, "*.sql.go"))
	if err != nil {
		return err
	}
	missing := slices.Clone(names)
	first := len(s.mutants) + 1
	var all []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		path := "storage/queries/" + strings.TrimSuffix(filepath.Base(file), ".go")
		for _, found := range constant_.FindAllStringSubmatch(string(source), -1) {
			name, text := found[1], strings.Trim(found[2], "`")
			all = append(all, name)
			if !slices.Contains(names, name) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(n string) bool { return n == name })
			line, err := s.lineOf(path, "-- name: "+name+" ")
			if err != nil {
				return err
			}
			for _, c := range changes(name, text) {
				s.mutants = append(s.mutants, Mutant{ID: len(s.mutants) + 1, File: path, Line: line, Function: name,
					Operator: c.operator,
					Before:   c.before, After: c.after, Query: name, Text: c.apply(text)})
			}
		}
		rewritten := constant_.ReplaceAll(source, []byte(`var $1 = mutantQuery_("$1", $2)`))
		rewritten = use.ReplaceAll(rewritten, []byte(`${1}ReachQuery_("$2", $2)`))
		s.overlay[queriesPackage+"/"+filepath.Base(file)] = rewritten
	}
	if len(missing) > 0 {
		return fmt.Errorf("unknown queries: %s", strings.Join(missing, ", "))
	}
	s.overlay[queriesPackage+"/mutants_.go"] = []byte(queryHelper(s.mutants[first-1:]))
	return s.noteTexts(all)
}

// noteTexts notes where the text of a query is read outside its package, such as for a batch.
func (s *mutantSet) noteTexts(names []string) error {
	texts := regexp.MustCompile(`\bdbsqlc\.(` + strings.Join(names, "|") + `)\b`)
	return filepath.WalkDir(filepath.Join(s.root, "storage"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		path, err := filepath.Rel(s.root, file)
		if err != nil {
			return err
		}
		source, mutated := s.overlay[path]
		if !mutated {
			if source, err = os.ReadFile(file); err != nil {
				return err
			}
		}
		if texts.Match(source) {
			s.overlay[path] = texts.ReplaceAll(source, []byte(`dbsqlc.ReachQuery_("$1", dbsqlc.$1)`))
		}
		return nil
	})
}

func queryHelper(mutants []Mutant) string {
	var b strings.Builder
	fmt.Fprintf(&b, `package dbsqlc

import (
	"os"
	"strconv"
	"sync"
)

func mutantQuery_(name, text string) string {
	chosen, _ := strconv.Atoi(os.Getenv(%q))
	if m, ok := mutants_[chosen]; ok && m.query == name {
		return m.text
	}
	return text
}

var reached_ sync.Map

func ReachQuery_(name, text string) string {
	path := os.Getenv(%q)
	if path == "" {
		return text
	}
	if _, again := reached_.LoadOrStore(name, true); !again {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			panic(err)
		}
		_, _ = f.WriteString(name + "\n")
		_ = f.Close()
	}
	return text
}

var mutants_ = map[int]struct{ query, text string }{
`, chosenVariable, reachVariable)
	for _, m := range mutants {
		fmt.Fprintf(&b, "\t%d: {%q, %s},\n", m.ID, m.Query, strconv.Quote(m.Text))
	}
	b.WriteString("}\n")
	return b.String()
}

// lineOf returns the number of the line where a file has the text.
func (s *mutantSet) lineOf(path, text string) (int, error) {
	content, err := os.ReadFile(filepath.Join(s.root, path))
	if err != nil {
		return 0, err
	}
	before, _, found := strings.Cut(string(content), text)
	if !found {
		return 0, fmt.Errorf("%q not found in %s", text, path)
	}
	return strings.Count(before, "\n") + 1, nil
}

// addFunctions makes mutants of functions and views of the schema.
func (s *mutantSet) addFunctions(names []string, changes func(name, text string) []change) error {
	for _, name := range names {
		path, line, text, err := schemaFunction(s.root, name)
		if err != nil {
			return err
		}
		for _, c := range changes(name, text) {
			s.mutants = append(s.mutants, Mutant{ID: len(s.mutants) + 1, File: path,
				Line:     line + strings.Count(text[:c.start], "\n"),
				Function: name, Operator: c.operator, Before: c.before, After: c.after, Schema: name,
				Text: c.apply(text)})
		}
	}
	return nil
}

// schemaFunction returns the last definition of a function or view.
func schemaFunction(root, name string) (path string, line int, text string, err error) {
	files, err := filepath.Glob(filepath.Join(root, "migrations", "*.up.sql"))
	if err != nil {
		return "", 0, "", err
	}
	head := regexp.MustCompile(`(?m)^create (?:or replace )?(?:function|view) turnkeeper\.` + name + `\b[( ]`)
	for _, file := range slices.Backward(files) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", 0, "", err
		}
		at := head.FindIndex(content)
		if at == nil {
			continue
		}
		text := firstStatement(string(content[at[0]:]))
		text = replaceable.ReplaceAllString(text, "create or replace $1")
		return "migrations/" + filepath.Base(file), strings.Count(string(content[:at[0]]), "\n") + 1, text, nil
	}
	return "", 0, "", fmt.Errorf("function %s not found in the migrations", name)
}

var replaceable = regexp.MustCompile(`^create (function|view)`)

// firstStatement returns the first statement of a text, with its semicolon.
func firstStatement(text string) string {
	quoted := false
	for _, t := range sqlTokens(text) {
		switch {
		case t.text == "$$":
			quoted = !quoted
		case t.text == ";" && !quoted:
			return text[:t.end]
		}
	}
	return text
}

var body = regexp.MustCompile(`(?is)(as \$\$.*?)\bbegin\b`)

// counted returns the function with a sequence that counts its calls: a rollback does not undo a
// sequence. It does not count calls in read-only transactions, such as those of turnctl check, where nextval fails. ok
// is false for functions that are a single expression.
func counted(name, text string) (sql string, ok bool) {
	if !strings.Contains(text, "plpgsql") {
		return "", false
	}
	at := body.FindStringIndex(text)
	if at == nil {
		return "", false
	}
	return fmt.Sprintf("create sequence mutants.%[1]s;\n%[2]s if current_setting('transaction_read_only') = 'off' "+
		"then perform nextval('mutants.%[1]s'); end if; %[3]s\n", name, text[:at[1]], text[at[1]:]), true
}

// write writes the overlay to a folder and returns the path of the list for go build -overlay.
func (s *mutantSet) write(folder string) (string, error) {
	replace := map[string]string{}
	for path, content := range s.overlay {
		at := filepath.Join(folder, strings.ReplaceAll(path, "/", "__"))
		if err := os.WriteFile(at, content, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(s.root, path)] = at
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
