package waiting_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
)

const module = "../.."

// constants returns the constants of type Reason by name.
func constants(t *testing.T) map[string]waiting.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "waiting.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]waiting.Reason{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && fmt.Sprint(spec.Type) == "Reason" {
			found[spec.Names[0].Name] = waiting.Reason(strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`))
		}
		return true
	})
	return found
}

// full returns a Wait with all fields set.
func full(r waiting.Reason, state turnkeeper.TurnState) waiting.Wait {
	now := time.Now()
	return waiting.Wait{
		Reason: r, Since: now, Until: now, Agent: "a", Lane: "l", Message: 3, Turn: 4, State: state, Worker: "w",
		Stopped: true, Silent: time.Minute,
		Model: "m", Count: 5, Why: "y",
	}
}

// bare returns a Wait without the fields that may be unknown.
func bare(r waiting.Reason, state turnkeeper.TurnState) waiting.Wait {
	return waiting.Wait{Reason: r, Agent: "a", Lane: "l", Message: 3, Turn: 4, State: state, Model: "m", Count: 1}
}

// screened has what a caller sees whose token is bound to a user.
func screened(r waiting.Reason, state turnkeeper.TurnState) waiting.Wait {
	w := full(r, state)
	w.Lane, w.Worker, w.Why = "", "", ""
	return w
}

// TestEveryReasonIsARow checks that no reason and no text is missing, and that each text can be written from any Wait.
func TestEveryReasonIsARow(t *testing.T) {
	t.Parallel()
	rows := map[waiting.Reason]int{}
	for _, row := range waiting.Rows {
		rows[row.Reason]++
	}
	for name, reason := range constants(t) {
		if rows[reason] != 1 {
			t.Errorf("%s, %q, has %d rows, want one", name, reason, rows[reason])
		}
		delete(rows, reason)
	}
	for reason := range rows {
		t.Errorf("the row of %q has no constant", reason)
	}
	said := func(time.Time) string { return "then" }
	for _, row := range waiting.Rows {
		for _, state := range []turnkeeper.TurnState{turnkeeper.TurnRunning, turnkeeper.TurnQueued,
			turnkeeper.TurnWaiting, ""} {
			for _, w := range []waiting.Wait{full(row.Reason, state), bare(row.Reason, state),
				screened(row.Reason, state)} {
				for name, text := range map[string]string{
					"Short": w.Short(said), "Long": w.Long(said), "Advice": w.Advice(1, "worker"),
					"Meaning": row.Meaning,
					"Generic": waiting.Generic(row.Advice),
				} {
					if strings.TrimSpace(text) == "" || strings.ContainsAny(text, "{}[]") || strings.Contains(text,
						"  ") || strings.Contains(text, " ,") || strings.Contains(text, "..") {
						t.Errorf("%s of %s, turn %q: %q", name, row.Reason, state, text)
					}
				}
			}
		}
		for _, field := range strings.Fields(row.Fields) {
			if _, ok := reflect.TypeFor[waiting.Wait]().FieldByName(field); !ok {
				t.Errorf("%s uses the field %s, which Wait does not have", row.Reason, field)
			}
		}
	}
}

var braces = regexp.MustCompile(`\{([^{}]*)\}`)

// fieldOf maps the fields of texts to those of Wait, where the names differ.
var fieldOf = map[string][]string{
	"ago": {"Until"}, "lease": {"Until"}, "since or yet": {"Since"}, "first": {"Message"},
	"messages": {"Count", "Message"}, "failures": {"Count"},
	"asks": {"Count"}, "calls": {"Count"}, "agents": {"Count"}, "turns": {"Count"}, "slots": {"Count"},
	"priority": {"Count"}, "doing": {"State"},
	"quiet": {"Silent", "Stopped"}, "silence": {"Silent", "Stopped", "Worker", "Turn", "Until"}, "rival": {"Lane"},
	"new": {"Lane"},
	"id":  {}, "worker command": {},
}

// TestTextsUseTheFieldsOfTheirRow checks that the fields in the texts are those that the row names, and that none is
// misspelt.
func TestTextsUseTheFieldsOfTheirRow(t *testing.T) {
	t.Parallel()
	for _, row := range waiting.Rows {
		for _, match := range braces.FindAllStringSubmatch(row.Short+row.Long+row.Advice, -1) {
			names, special := fieldOf[match[1]]
			if !special {
				names = []string{strings.ToUpper(match[1][:1]) + match[1][1:]}
			}
			for _, name := range names {
				if !slices.Contains(strings.Fields(row.Fields), name) {
					t.Errorf("a text of %s has {%s}, and its row does not name the field %s", row.Reason,
						match[1], name)
				}
			}
		}
	}
}

var selector = regexp.MustCompile(`\bwaiting\.([A-Z]\w+)`)

// reasonsIn returns which reasons a source file names.
func reasonsIn(source string, constants map[string]waiting.Reason) (named []string) {
	for _, match := range selector.FindAllStringSubmatch(source, -1) {
		if name := match[1]; constants[name] != "" && !slices.Contains(named, name) {
			named = append(named, name)
		}
	}
	return named
}

// TestNobodyElseListsReasons checks that no other package has a list of reasons of its own, in which one could be
// missing. A file may name two reasons.
func TestNobodyElseListsReasons(t *testing.T) {
	t.Parallel()
	all := constants(t)
	if planted := reasonsIn("case waiting.NotDue, waiting.Person, waiting.NoWorker:", all); len(planted) != 3 {
		t.Fatalf("of three reasons, %q were found", planted)
	}
	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return nil
		// they decide
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path,
			"/internal/waiting/") || strings.Contains(path, "/internal/memory/"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if named := reasonsIn(string(source), all); len(named) > 2 {
			t.Errorf("%s lists reasons: %q. Read waiting.Rows instead", path, named)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheSchemaGivesTheseReasons checks that the function blockers returns the reasons of Rows, and no others.
func TestTheSchemaGivesTheseReasons(t *testing.T) {
	t.Parallel()
	schema, err := os.ReadFile(filepath.Join(module, "migrations", "002_scheduling.up.sql"))
	if err != nil {
		t.Fatal(err)
	}
	given := map[waiting.Reason]bool{waiting.NextTick: true} // of a message without a blocker
	for _, match := range regexp.MustCompile(`(?s)(?:r\.reason := |function turnkeeper\.deferred_for[^;]*return case)([^;]*);`).FindAllStringSubmatch(string(schema), -1) {
		for _, literal := range regexp.MustCompile(`'([a-z_]+)'`).FindAllStringSubmatch(match[1], -1) {
			if literal[1] != "budget" && literal[1] != "needs_newer_worker" { // error classes
				given[waiting.Reason(literal[1])] = true
			}
		}
	}
	for _, row := range waiting.Rows {
		if !given[row.Reason] {
			t.Errorf("the schema never gives %s", row.Reason)
		}
		delete(given, row.Reason)
	}
	for reason := range given {
		t.Errorf("the schema gives %s, which has no row", reason)
	}
}

// TestReasonsAreDocumented checks the table of reasons in docs/operating.md.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(module, "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range waiting.Rows {
		want := fmt.Sprintf("| `%s` | %s | %s |\n", row.Reason, row.Meaning, waiting.Generic(row.Advice))
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/operating.md lacks the line\n%s", want)
		}
	}
}
