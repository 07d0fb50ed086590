package turnctl

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/views"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/tools/mcp/mcpdef"
)

// A filler fills values: each text with the name of its field, and each number with another one. Times and durations differ by
// minutes, below an hour, so that none is rounded to that of another field.
type filler int

// filled returns a value without empty fields. A map stays empty.
func filled[T any](n int) (value T) {
	f := filler(n)
	f.fill(reflect.ValueOf(&value).Elem(), "value")
	return value
}

func (f *filler) fill(v reflect.Value, name string) {
	*f++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(utcNow.Now.Add(-time.Duration(*f%50+1) * time.Minute)))
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(time.Duration(*f%50+1) * time.Minute))
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("%s%d", strings.ToLower(name), *f))
	case v.CanInt():
		v.SetInt(int64(*f))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), name)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), v.Type().Field(i).Name)
			}
		}
	}
}

// with returns a filled value after a change.
func with[T any](n int, change func(*T)) T {
	v := filled[T](n)
	change(&v)
	return v
}

// TestScreens compares lists and pages of filled values with testdata: a column with another field's value is seen.
func TestScreens(t *testing.T) {
	for name, show := range map[string]func(*term.Screen){
		"webhooks": func(s *term.Screen) {
			showWebhooks(s, utcNow, []operate.WebhookView{
				filled[operate.WebhookView](100),
				with(200, func(w *operate.WebhookView) {
					w.PausedAt, w.NotBefore, w.Dead, w.SeenAt, w.Now = time.Time{}, time.Time{}, 0, utcNow.Now, utcNow.Now
				}),
				with(300, func(w *operate.WebhookView) {
					w.PausedAt, w.NotBefore, w.SeenAt, w.Now, w.Agents = time.Time{}, time.Time{}, began, utcNow.Now, nil
				}),
				{Webhook: outbox.Webhook{Name: "new", SeenAt: began}, Now: began},
			})
		},
		"webhook": func(s *term.Screen) {
			state := func(n int, sending bool, state outbox.DeliveryState) outbox.Delivery {
				return with(n, func(d *outbox.Delivery) { d.State, d.Sending = state, sending })
			}
			showWebhook(s, utcNow, filled[operate.WebhookView](100), []outbox.Delivery{
				state(200, true, outbox.DeliveryPending), state(300, false, outbox.DeliveryPending), state(400, false, outbox.DeliveryDelivered),
				state(500, false, outbox.DeliveryDead), {ID: 1, AskID: 2, Webhook: "shop", State: outbox.DeliveryPending, DueAt: began},
			})
			s.Line("")
			showWebhook(s, utcNow, operate.WebhookView{Webhook: outbox.Webhook{Name: "lost"}, Now: began}, nil)
		},
		"tokens": func(s *term.Screen) {
			showTokens(s, utcNow, []operate.Token{filled[operate.Token](100), {Name: "all", Scopes: []string{"read"}, CreatedAt: began}})
		},
		"aside": func(s *term.Screen) {
			showAside(s, utcNow, []granting.Aside{filled[granting.Aside](100), {Subject: granting.Subject{Kind: granting.AsideTick}, Since: began}})
		},
		"levels": func(s *term.Screen) {
			showLevels(s, utcNow, []operate.AgentLevel{
				with(100, func(l *operate.AgentLevel) { l.Used.TokenLimit, l.Used.CallLimit = 1000, 0 }),
				{Agent: "free", Level: survival.Critical, Pin: &operate.Pin{Level: survival.Critical, At: began}},
			})
		},
		"logins": func(s *term.Screen) {
			showLogins(s, utcNow, []loginState{
				{"missing", mcpdef.Login{}}, {"ended", filled[mcpdef.Login](100)},
				{"expired", mcpdef.Login{LoggedInAt: began, Expires: after(9 * time.Minute)}},
				{"narrow", mcpdef.Login{LoggedInAt: began, RenewedAt: after(time.Minute), Wanted: []string{"w"}, Scopes: []string{"a", "b"}}},
				{"well", mcpdef.Login{LoggedInAt: began, RenewedAt: after(5 * time.Minute), Expires: after(10 * time.Minute), Scopes: []string{"a"}}},
			})
		},
		"agent": func(s *term.Screen) {
			showAgent(s, utcNow, filled[views.WholeAgent](100))
			showAgent(s, utcNow, views.WholeAgent{Schedules: []views.Schedule{{}}})
		},
		"report": func(s *term.Screen) {
			showReport(s, utcNow, with(100, func(r *agentReport) {
				r.File = ""
				for i := range r.Schedules {
					r.Schedules[i].TimeZone, r.Schedules[i].Agent = "Europe/Berlin", r.Agents[i]
				}
			}))
			showReport(s, utcNow, agentReport{Agents: []string{"one"}, Folder: "agents"})
			showReport(s, utcNow, agentReport{Agents: []string{"one"}, File: "agents/one.md", Problems: []string{"wrong"}})
		},
		"mcp-tools": func(s *term.Screen) {
			showMCPTools(s, &config.Config{}, []mcpdef.Tool{
				filled[mcpdef.Tool](100), with(200, func(tool *mcpdef.Tool) { tool.Gone = false }),
				with(300, func(tool *mcpdef.Tool) { tool.Gone, tool.Pinned = false, tool.Seen }),
			})
		},
		"applied": func(s *term.Screen) {
			showApplied(s, []storage.Migration{{Version: 7, Name: "asks"}})
			showApplied(s, nil)
		},
		"pause": func(s *term.Screen) {
			for _, set := range []operate.SchedulerSettings{
				{}, {PausedAt: began, PausedReason: "repairs"},
				{HoldUntil: utcNow.Now, HoldReason: "over"}, {HoldUntil: utcNow.Now.Add(1), HoldReason: "a restore"},
			} {
				showPause(s, utcNow, set)
				showScheduler(s, utcNow, set)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			show(&term.Screen{W: &out, Columns: 160})
			golden.File(t, "testdata/screen-"+name+".txt", out.String())
		})
	}
}

// TestEachScreenIsTested checks that a test calls each function that writes to a screen.
func TestEachScreenIsTested(t *testing.T) {
	shows, called := map[string]bool{}, map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.FuncDecl:
				if !strings.HasSuffix(name, "_test.go") && strings.HasPrefix(n.Name.Name, "show") && takesScreen(n) {
					shows[n.Name.Name] = true
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && strings.HasSuffix(name, "_test.go") {
					called[f.Name] = true
				}
			}
			return true
		})
	}
	if len(shows) < 20 {
		t.Fatalf("only %d functions were found", len(shows))
	}
	inCLI := []string{"showExplanation", "showTopics"} // TestExplain and others of the package internal/cli run them
	for _, name := range slices.Sorted(maps.Keys(shows)) {
		if !called[name] && !slices.Contains(inCLI, name) {
			t.Errorf("no test calls %s", name)
		}
	}
}

func takesScreen(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool {
		pointer, ok := p.Type.(*ast.StarExpr)
		if !ok {
			return false
		}
		of, ok := pointer.X.(*ast.SelectorExpr)
		return ok && of.Sel.Name == "Screen"
	})
}
