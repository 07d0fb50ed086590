package archtest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/archtest"
)

const smallOrder = `
# a house of three floors
NONE < turnkeeper, yard;
turnkeeper < storage, turn;   # two rooms side by side
storage, turn < jobs < cmd/worker;
storage < storage/storagetest;
turn !< storage, jobs;
cmd/worker !> storage;
storage/storagetest < TEST;
`

const smallDoors = `
example.org/pgx: storage, jobs;
example.org/pgx/types: ANY;
example.org/cmp: TEST;
database/sql: NONE;
`

func TestCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pkg  archtest.Package
		want []string
	}{
		"an arrow": {pkg: imports("storage", pathOf("turnkeeper"))},
		"above and kept out": {pkg: imports("cmd/worker", pathOf("storage")),
			want: []string{`cmd/worker imports storage, which a "!>" forbids`}},
		"a test above and kept out": {pkg: tests("cmd/worker", pathOf("storage"))},
		"over two floors":           {pkg: imports("cmd/worker", pathOf("turnkeeper"), pathOf("turn"))},
		"the standard library":      {pkg: imports("turn", "fmt", "net/http")},
		"through a door":            {pkg: imports("storage", "example.org/pgx", "example.org/pgx/pool")},
		"an inner door for all":     {pkg: imports("turn", "example.org/pgx/types")},
		"upwards": {pkg: imports("turnkeeper", pathOf("turn")),
			want: []string{"turnkeeper imports turn: no arrow leads there"}},
		"sideways": {pkg: imports("turn", pathOf("storage")),
			want: []string{"turn imports storage: no arrow leads there"}},
		"from the yard": {pkg: imports("yard", pathOf("turnkeeper")),
			want: []string{"yard imports turnkeeper: no arrow leads there"}},
		"test support in the product": {pkg: imports("jobs", pathOf("storage/storagetest")),
			want: []string{"jobs imports storage/storagetest: no arrow leads there"}},
		"a package without a place": {pkg: imports("attic", "fmt"),
			want: []string{"attic has no place: draw its arrows in arrows.txt"}},
		"past the door": {pkg: imports("turn", "example.org/pgx"),
			want: []string{"turn imports example.org/pgx, which may be imported only by storage, jobs"}},
		"a library without a door": {pkg: imports("turn", "example.org/new"),
			want: []string{
				"turn imports example.org/new, which has no door: name the packages that may use it in doors.txt"}},
		"a test library": {pkg: imports("turn", "example.org/cmp"),
			want: []string{"turn imports example.org/cmp, which may be imported only by TEST"}},
		"a closed door": {pkg: imports("storage", "database/sql/driver"),
			want: []string{"storage imports database/sql/driver, which may be imported only by NONE"}},
		"a test of itself":         {pkg: tests("turn", pathOf("turn"), pathOf("turnkeeper"), "example.org/cmp")},
		"a test with test support": {pkg: tests("turn", pathOf("storage/storagetest"))},
		"a test with what is under it": {
			pkg: tests("turn", pathOf("storage"), "example.org/pgx"),
			want: []string{"a test of turn imports storage: no arrow leads there",
				"a test of turn imports example.org/pgx, which may be imported only by storage, jobs"},
		},
	}
	order, err := archtest.ParseOrder(smallOrder)
	if err != nil {
		t.Fatal(err)
	}
	doors, err := archtest.ParseDoors(smallDoors)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := archtest.Check([]archtest.Package{c.pkg}, order, doors)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func imports(name string, paths ...string) archtest.Package {
	return archtest.Package{ImportPath: pathOf(name), Imports: paths}
}

func tests(name string, paths ...string) archtest.Package {
	return archtest.Package{ImportPath: pathOf(name), XTestImports: paths}
}

func pathOf(name string) string {
	if name == "turnkeeper" {
		return archtest.Module
	}
	return archtest.Module + "/" + name
}

func TestTestsInsideThePackageAreJudgedToo(t *testing.T) {
	t.Parallel()
	order, err := archtest.ParseOrder(smallOrder)
	if err != nil {
		t.Fatal(err)
	}
	pkg := archtest.Package{ImportPath: pathOf("turn"), TestImports: []string{pathOf("jobs")}}
	if got := archtest.Check([]archtest.Package{pkg}, order, nil); len(got) != 1 {
		t.Errorf("faults: %v, want one", got)
	}
}

func TestContradictions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ text, want string }{
		"a ring":               {"NONE < a; a < b; b < c; c < a;", "stands above itself"},
		"a forbidden arrow":    {"NONE < a; a < b < c; c !< a;", `c stands above a, which a "!<" forbids`},
		"a forbidden stranger": {"NONE < a; a !< b;", `a "!<" names b, which no arrow knows`},
		"kept from a stranger": {"NONE < a; NONE < b; a !> b;", "which it does not stand above"},
		"on nothing":           {"a < b;", "a stands below b, and nothing says what it stands on"},
		"no arrow":             {"a, b;", "has no arrow"},
		"no name":              {"a, < b;", "is no name of a package"},
		"a lost semicolon":     {"NONE < a\nNONE < b;", "is no name of a package"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := archtest.ParseOrder(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

func TestDoorsThatDoNotRead(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no colon":    "example.org/a;",
		"named twice": "example.org/a: ANY; example.org/a: NONE;",
		"no user":     "example.org/a: ;",
	} {
		if doors, err := archtest.ParseDoors(text); err == nil {
			t.Errorf("%s: read as %v", name, doors)
		}
	}
}
