package httpapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnkeeper/httpapi/internal/request"
	"turnkeeper/storage/storagetest"
)

// states are the constants of a type in a folder.
type states struct{ folder, name string }

// all returns the values of the constants, in the order of the source.
func (s states) all(t *testing.T) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, constantsOf(file, s.name)...)
	}
	if len(values) < 2 {
		t.Fatalf("%s has only the constants %q of %s", s.folder, values, s.name)
	}
	return values
}

// constantsOf returns the values of the constants of a type. One without a type has that of the one before it.
func constantsOf(file *ast.File, name string) (values []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		if typed, is := spec.Type.(*ast.Ident); is && typed.Name == name {
			for _, v := range spec.Values {
				if text, is := v.(*ast.BasicLit); is && text.Kind == token.STRING {
					value, _ := strconv.Unquote(text.Value)
					values = append(values, value)
				}
			}
		}
		return true
	})
	return values
}

// TestEveryStateIsInEachPlace compares the constants of each state and reason with the filters of the lists, the
// description of the API, the rows that the database allows, and the documentation of SQL.
func TestEveryStateIsInEachPlace(t *testing.T) {
	db := storagetest.WithAgents(t)
	described := readDocument(t, readFile(t, "openapi.json")).Components.Schemas
	sql := string(readFile(t, "../docs/sql.md"))
	for _, c := range []struct {
		states
		enum     string   // in the description
		filter   []string // of lists; nil: none
		relation string   // in the database; empty: they are not stored, or not as they are
		column   string
	}{
		{states{"..", "MessageState"}, "MessageState", request.MessageStates, "messages", "state"},
		{states{"..", "TurnState"}, "TurnState", request.TurnStates, "turns", "state"},
		{states{"..", "CallState"}, "CallState", nil, "", ""},
		{states{"..", "StopReason"}, "StopReason", nil, "", ""},
		{states{"..", "Trigger"}, "MessageTrigger", nil, "messages", "trigger"},
		{states{"..", "Effect"}, "ToolEffect", nil, "", ""},
		{states{"../asks", "State"}, "AskState", request.AskStates, "asks", "state"},
		{states{"../asks", "Kind"}, "AskKind", nil, "asks", "kind"},
		{states{"../internal/outbox", "DeliveryState"}, "DeliveryState", request.DeliveryStates,
			"webhook_deliveries", "state"},
		{states{"../internal/waiting", "Reason"}, "WaitReason", nil, "", ""},
		{states{"../internal/presence", "State"}, "WorkerState", nil, "", ""},
		{states{"../storage/operate", "WebhookState"}, "WebhookState", nil, "", ""},
		{states{"../internal/survival", "Level"}, "SurvivalLevel", nil, "pinned_levels", "level"},
		{states{"../internal/diagnosis", "Verdict"}, "DoctorVerdict", nil, "", ""},
	} {
		want := slices.Sorted(slices.Values(c.all(t)))
		var enum []string
		values, _ := described[c.enum]["enum"].([]any)
		for _, value := range values {
			enum = append(enum, value.(string))
		}
		if slices.Sort(enum); !slices.Equal(enum, want) {
			t.Errorf("%s is described as %q, want %q", c.enum, enum, want)
		}
		if c.filter != nil && !slices.Equal(slices.Sorted(slices.Values(c.filter)), want) {
			t.Errorf("lists can be filtered by the %s %q, want %q", c.enum, c.filter, want)
		}
		if c.relation == "" {
			continue
		}
		_, row, documented := strings.Cut(sql, "\n| `"+c.relation+"` |")
		row, _, _ = strings.Cut(row, "\n")
		for _, value := range want {
			if documented && !strings.Contains(row, "`"+value+"`") {
				t.Errorf("docs/sql.md says nothing of the %s %s of %s", c.column, value, c.relation)
			}
			const checks = `select exists (select from pg_constraint c where c.conrelid = ('turnkeeper.' || $1)::regclass and c.contype = 'c'
				and (pg_get_constraintdef(c.oid) like '%' || $2 || '%' or $1 in ('turns', 'messages') and
				pg_get_functiondef(('turnkeeper.' || left($1, -1) || '_holds')::regproc) like '%' || $2 || '%'))`
			if !storagetest.One[bool](db, checks, c.relation, "'"+value+"'") {
				t.Errorf("the database does not know the %s %s of %s", c.column, value, c.relation)
			}
		}
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
