package tests_test

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const (
	contractTable = "../docs/contract.md"
	specification = "../../shared/spec.md"
)

// A sentence is one sentence, or one row of a table, of the contract.
type sentence struct{ section, text string }

// A holding is a row of docs/contract.md: the sentence that it is about, and what holds it.
type holding struct {
	section, text, hash string
	tests               []string // as "package: TestName", or "package: \"name of a case\""
	note                string
	line                int
}

// TestTheTableOfTheContract checks the rows of docs/contract.md by themselves, and those of the
// specification's sentences where it lies in a folder next to the repository.
func TestTheTableOfTheContract(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile(contractTable)
	if err != nil {
		t.Fatal(err)
	}
	rows, faults := readHoldings(string(table))
	faults = append(faults, checkHoldings(rows, testsOf(t))...)
	if len(rows) < 250 {
		t.Errorf("the table has only %d rows", len(rows))
	}
	spec, err := os.ReadFile(specification)
	switch {
	case err == nil:
		faults = append(faults, compareHoldings(sentences(string(spec)), rows)...)
	case !errors.Is(err, fs.ErrNotExist):
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

var (
	specHeading = regexp.MustCompile(`^## (\d+)\. `)
	listMark    = regexp.MustCompile(`^(- |\d+\. )`)
	tableRule   = regexp.MustCompile(`^\| ?---`)
)

// sentences splits a specification. Those before the first section have the section 0.
func sentences(spec string) (list []sentence) {
	section, header := "0", 0
	for line := range strings.Lines(spec) {
		line = strings.TrimSpace(line)
		match := specHeading.FindStringSubmatch(line)
		switch {
		case match != nil:
			section = match[1]
		case tableRule.MatchString(line):
			list = list[:header] // the line before names the columns
		case line != "" && !strings.HasPrefix(line, "#"):
			header = len(list)
			for _, text := range splitSentences(unit(line)) {
				list = append(list, sentence{section, text})
			}
		}
	}
	return list
}

// unit returns a line without its mark of a list, or a row of a table as its cells.
func unit(line string) string {
	if inner, isRow := strings.CutPrefix(line, "|"); isRow {
		cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		return strings.Join(cells, " — ")
	}
	return listMark.ReplaceAllString(line, "")
}

// splitSentences splits at ends of sentences that are followed by a capital or a code, and that are in
// no code. A heading of one word belongs to the sentence after it.
func splitSentences(text string) (list []string) {
	text = strings.ReplaceAll(text, "**", "")
	runes, start, inCode := []rune(text), 0, false
	for i, r := range runes {
		inCode = inCode != (r == '`')
		if r != ' ' || inCode || i == 0 || i+1 == len(runes) {
			continue
		}
		begins := unicode.IsUpper(runes[i+1]) || strings.ContainsRune("`(“\"", runes[i+1])
		heading := !slices.Contains(runes[start:i], ' ')
		if begins && !heading && strings.ContainsRune(".!?", runes[i-1]) {
			list, start = append(list, string(runes[start:i])), i+1
		}
	}
	return append(list, string(runes[start:]))
}

func hashOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:6] }

// rowFor returns the row of a sentence without its tests: its beginning, and its hash.
func rowFor(s sentence) string {
	text := s.text
	if words := strings.Fields(text); len(text) > 90 {
		for text = ""; len(words) > 0 && len(text)+len(words[0]) < 80; words = words[1:] {
			text = strings.TrimSpace(text + " " + words[0])
		}
		if at := strings.LastIndex(text, "`"); strings.Count(text, "`")%2 == 1 {
			text = strings.TrimSpace(text[:at])
		}
		text += " …"
	}
	return fmt.Sprintf("| %s | %s |", strings.ReplaceAll(text, "|", `\|`), hashOf(s.text))
}

var (
	tableHeading = regexp.MustCompile(`^## (\d+)\. `)
	namedTests   = regexp.MustCompile(`^([\w/]+): ((?:Test\w+|"[^"]+")(?:, (?:Test\w+|"[^"]+"))*)$`)
	namedTest    = regexp.MustCompile(`Test\w+|"[^"]+"`)
)

// readHoldings reads the rows of the table, and returns what it could not read.
func readHoldings(table string) (rows []holding, faults []string) {
	section, number := "0", 0
	for line := range strings.Lines(table) {
		number++
		line = strings.TrimSpace(line)
		if match := tableHeading.FindStringSubmatch(line); match != nil {
			section = match[1]
		}
		if !strings.HasPrefix(line, "| ") || tableRule.MatchString(line) || strings.HasPrefix(line, "| sentence |") {
			continue
		}
		row, err := readHolding(line)
		if err != nil {
			faults = append(faults, fmt.Sprintf("docs/contract.md:%d: %v", number, err))
			continue
		}
		row.section, row.line = section, number
		rows = append(rows, row)
	}
	return rows, faults
}

func readHolding(line string) (holding, error) {
	cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
	if len(cells) != 6 {
		return holding{}, fmt.Errorf("has %d columns, want 4: sentence, hash, held by, note", len(cells)-2)
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
	}
	row := holding{text: cells[1], hash: cells[2], note: cells[4]}
	for group := range strings.SplitSeq(cells[3], ";") {
		if group = strings.TrimSpace(group); group == "" {
			continue
		}
		match := namedTests.FindStringSubmatch(group)
		if match == nil {
			return row, fmt.Errorf("%q is not of the form `package: TestName, \"name of a case\"`", group)
		}
		for _, name := range namedTest.FindAllString(match[2], -1) {
			row.tests = append(row.tests, match[1]+": "+name)
		}
	}
	return row, nil
}

// A note of a row without tests begins with one of these, and gives the reason.
var reasons = []string{"not built yet: ", "no test: "}

// checkHoldings checks the rows without the specification.
func checkHoldings(rows []holding, exists map[string]bool) (faults []string) {
	for _, row := range rows {
		for _, test := range row.tests {
			if !exists[test] {
				faults = append(faults, fmt.Sprintf("docs/contract.md:%d: there is no test %q", row.line, test))
			}
		}
		reason := slices.ContainsFunc(reasons, func(begin string) bool {
			rest, found := strings.CutPrefix(row.note, begin)
			return found && len(rest) >= 10
		})
		if len(row.tests) == 0 && !reason {
			faults = append(faults, fmt.Sprintf("docs/contract.md:%d: names neither a test nor, after %q, a reason",
				row.line, reasons))
		}
	}
	return faults
}

// compareHoldings compares the rows with the sentences of the specification.
func compareHoldings(list []sentence, rows []holding) (faults []string) {
	byHash := map[string]*holding{}
	for i := range rows {
		key := rows[i].section + " " + rows[i].hash
		if byHash[key] != nil {
			faults = append(faults, fmt.Sprintf("docs/contract.md:%d: repeats line %d", rows[i].line, byHash[key].line))
		}
		byHash[key] = &rows[i]
	}
	for _, s := range list {
		key := s.section + " " + hashOf(s.text)
		row := byHash[key]
		delete(byHash, key)
		switch {
		case row == nil:
			faults = append(faults, fmt.Sprintf("section %s: no row for %q; find the tests that hold it and add\n%s",
				s.section, s.text, rowFor(s)))
		case !strings.HasPrefix(s.text, strings.TrimSpace(strings.TrimSuffix(row.text, "…"))):
			faults = append(faults,
				fmt.Sprintf("docs/contract.md:%d: the sentence of hash %s begins with other words: %q",
					row.line, row.hash, s.text))
		}
	}
	left := slices.SortedFunc(maps.Values(byHash), func(a, b *holding) int { return cmp.Compare(a.line, b.line) })
	for _, row := range left {
		faults = append(faults,
			fmt.Sprintf("docs/contract.md:%d: section %s of the specification has no such sentence, "+
				"or has changed it: read it again", row.line, row.section))
	}
	return faults
}

// testsOf returns the tests of the module, each as "package: TestName". The cases of the stores' suite
// are among them, as "package: \"name of the case\"".
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if slices.Contains([]string{"node_modules", "bin", "testdata", ".git"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		folder, _ := filepath.Rel("..", filepath.Dir(path))
		suite := folder == "internal/storesuite" && filepath.Ext(path) == ".go"
		if !suite && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, name := range namesIn(file, suite) {
			exists[folder+": "+name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return exists
}

// namesIn returns the names of the tests of a file, and with texts its string literals.
func namesIn(file *ast.File, texts bool) (names []string) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
			names = append(names, f.Name.Name)
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && texts && literal.Kind == token.STRING {
			names = append(names, literal.Value)
		}
		return true
	})
	return names
}

// TestFaultsOfTheTableOfTheContract plants each fault in a small table.
func TestFaultsOfTheTableOfTheContract(t *testing.T) {
	t.Parallel()
	const spec = "# Title\n\n## 1. Words\n\n| word | meaning |\n| --- | --- |\n" +
		"| lane | runs one turn. It has a lease |\n\n- Call. It `stops. Then` ends, e.g. here. **Last.**\n"
	list := sentences(spec)
	want := []sentence{
		{"1", "lane — runs one turn."}, {"1", "It has a lease"},
		{"1", "Call. It `stops. Then` ends, e.g. here."}, {"1", "Last."},
	}
	if !slices.Equal(list, want) {
		t.Fatalf("the sentences are %q", list)
	}
	good := "## 1. Words\n| sentence | hash | held by | note |\n| --- | --- | --- | --- |\n"
	const tests = `tests: TestA, "a case"; jobs: TestB`
	for _, s := range list {
		good += rowFor(s) + " " + tests + " | |\n"
	}
	without := strings.Replace(good, tests, "", 1)
	exists := map[string]bool{"tests: TestA": true, `tests: "a case"`: true, "jobs: TestB": true}
	for name, c := range map[string]struct{ table, spec, want string }{
		"none": {good, spec, ""},
		"a test that does not exist": {strings.Replace(good, "TestB", "TestC", 1), spec,
			`there is no test "jobs: TestC"`},
		"a test of another package":   {strings.Replace(good, "TestB", "TestA", 1), spec, `no test "jobs: TestA"`},
		"no package":                  {strings.Replace(good, "jobs: TestB", "TestB", 1), spec, "is not of the form"},
		"neither a test nor a reason": {without, spec, "names neither"},
		"no reason":                   {strings.Replace(without, "|  | |", "| | no test: |", 1), spec, "names neither"},
		"a missing column":            {strings.Replace(good, "| |", "|", 1), spec, "has 3 columns"},
		"a sentence without a row":    {good, spec + "\nOne more.", `no row for "One more."`},
		"a sentence that has changed": {good, strings.Replace(spec, "a lease", "two leases", 1), "or has changed it"},
		"a row of another section":    {good, strings.Replace(spec, "## 1.", "## 2.", 1), "section 2: no row"},
		"a row twice":                 {good + strings.Split(good, "\n")[3], spec, "repeats line 4"},
		"other words":                 {strings.Replace(good, "It has", "It had", 1), spec, "begins with other words"},
	} {
		rows, faults := readHoldings(c.table)
		faults = append(append(faults, checkHoldings(rows, exists)...), compareHoldings(sentences(c.spec), rows)...)
		if all := strings.Join(faults, "\n"); (all == "") != (c.want == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: got %q, want %q", name, all, c.want)
		}
	}
}
