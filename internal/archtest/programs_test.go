package archtest_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists of programs anew, with their reasons")

// forbidden lists path prefixes of the libraries and packages that a program must not link.
var forbidden = map[string][]string{
	"enqueue": {
		"github.com/openai/", "github.com/tiktoken-go/", "github.com/modelcontextprotocol/", "github.com/riverqueue/",
		"go.opentelemetry.io/",
		"github.com/prometheus/", "google.golang.org/", "github.com/lib/pq", "testing", "net/http/httptest",
		"turnkeeper/internal/app", "turnkeeper/jobs", "turnkeeper/httpapi",
	},
	"turnctl": {"github.com/lib/pq", "testing", "github.com/openai/", "go.opentelemetry.io/", "github.com/prometheus/",
		"google.golang.org/grpc", "turnkeeper/httpapi", "turnkeeper/telemetry"},
	"worker": {"github.com/lib/pq", "testing", "net/http/httptest", "github.com/chromedp/"},
}

// TestPrograms compares what each program links with its list in programs/. A line is one of our packages or a module,
// and may end with a reason.
func TestPrograms(t *testing.T) {
	for program, never := range forbidden {
		t.Run(program, func(t *testing.T) {
			path := filepath.Join("programs", program+".txt")
			linked := linkedBy(t, program)
			for _, name := range linked.all {
				for _, prefix := range never {
					if strings.HasPrefix(name, prefix) {
						t.Errorf("%s links %s, which it must never link", program, name)
					}
				}
			}
			old, err := os.ReadFile(path)
			if err != nil && !*update {
				t.Fatal(err)
			}
			got := withReasons(linked.lines, string(old))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(old) {
				t.Errorf(
					"what %s links differs from %s: run \"make generate\", give each new heavy part a reason, and look at the difference", program, path)
			}
		})
	}
}

type links struct{ all, lines []string }

// linkedBy lists the packages outside the standard library: our packages, and the modules of others.
func linkedBy(t *testing.T, program string) links {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}",
		"turnkeeper/cmd/"+program)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0") // the same list on all machines
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var found links
	modules := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, module, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		found.all = append(found.all, name)
		switch module {
		case "":
		case "turnkeeper":
			found.lines = append(found.lines, name)
		default:
			modules[module] = true
		}
	}
	for module := range modules {
		found.lines = append(found.lines, module)
	}
	slices.Sort(found.lines)
	return found
}

// withReasons adds the reasons and the heading of the old list.
func withReasons(lines []string, old string) string {
	reasons := map[string]string{}
	head := ""
	for line := range strings.Lines(old) {
		if strings.HasPrefix(line, "#") {
			head += line
			continue
		}
		name, reason, _ := strings.Cut(strings.TrimSpace(line), "  # ")
		reasons[name] = reason
	}
	var b strings.Builder
	b.WriteString(head)
	for _, line := range lines {
		b.WriteString(line)
		if reason := reasons[line]; reason != "" {
			b.WriteString("  # " + reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}
