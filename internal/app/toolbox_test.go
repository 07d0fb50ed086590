package app_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/zap"

	"turnkeeper/internal/app"
	"turnkeeper/tools"
)

func nothing[A any](name string) tools.Tool {
	return tools.Func(tools.Spec{Name: name, Description: "Does nothing."}, func(context.Context, A) (string, error) {
		return "", nil
	})
}

func TestAFaultyToolIsReportedAtTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		tool tools.Tool
		says string
	}{
		"arguments without a schema": {nothing[struct{ C chan int }]("broken"),
			`tool "broken": its arguments have no schema: `},
		"the name of a built-in one": {nothing[struct{}]("clock"), `tool "clock" is registered twice`},
	} {
		t.Run(name, func(t *testing.T) {
			err := app.RunWorker(t.Context(), t.Context(), settings(t, clockAgent), zap.NewNop(),
				func(app.Ready) { t.Error("the worker takes work") }, app.WithTools(c.tool))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the worker ended with %v", err)
			}
		})
	}
}
