package archtest_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/archtest"
)

//go:embed values.txt
var values string

// TestValues checks that no package but internal/arguments decodes JSON into any, where numbers become floats and the
// last of several equal keys wins.
func TestValues(t *testing.T) {
	t.Parallel()
	allowed, err := archtest.ParseReaders(values)
	if err != nil {
		t.Fatalf("values.txt: %v", err)
	}
	readFolders(t)
	found, err := archtest.ValueReads(list(t), exports(t, root))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SHOW_VALUES") != "" {
		t.Log(found)
	}
	for _, fault := range archtest.CheckReaders(found, allowed) {
		t.Error(strings.NewReplacer("decodes or reads a whole text", "decodes JSON into any",
			"readers.txt", "values.txt",
			"use package jsonlimit for data from outside", "use package internal/arguments").Replace(fault))
	}
}

// TestValueReads tests which places are found.
func TestValueReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `package p

import "encoding/json"

type own struct{ V any }

func (*own) UnmarshalJSON([]byte) error { return nil }

type tree struct {
	Name string
	Kids []tree
}

type hidden struct {
	Fine  string
	Deep  []map[string]*struct{ V any }
	other any
	Skip  any ` + "`json:\"-\"`" + `
}

func lax(text []byte, d *json.Decoder, into any) {
	var one any
	var object map[string]any
	var list []any
	var h hidden
	_ = json.Unmarshal(text, &one)
	_ = json.Unmarshal(text, &object)
	_ = json.Unmarshal(text, &list)
	_ = json.Unmarshal(text, &h)
	_ = json.Unmarshal(text, into)
	_ = d.Decode(&one)
}

func strict(text []byte, d *json.Decoder) {
	var raw map[string]json.RawMessage
	var text2 string
	var o own
	var t tree
	var skipped struct {
		other any
		Skip  any ` + "`json:\"-\"`" + `
	}
	_ = json.Unmarshal(text, &raw)
	_ = json.Unmarshal(text, &text2)
	_ = json.Unmarshal(text, &o)
	_ = json.Unmarshal(text, &skipped)
	_ = d.Decode(&t)
	_, _ = json.Marshal(raw)
}
`
	for name, content := range map[string]string{"p.go": text, "go.mod": "module turnkeeper/p\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := archtest.ValueReads([]archtest.Package{{ImportPath: pathOf("p"), Dir: dir,
		GoFiles: []string{"p.go"}}}, exports(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"p/p.go": 6}, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
