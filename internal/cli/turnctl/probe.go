package turnctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/views"
)

// probeModels adds what "worker probe" finds about a model, or about all. turnctl itself does not link the reading of
// answers, which would make it half again as large; and the worker's program is the one whose requests count.
func probeModels(ctx context.Context, s *shell.Session, d *diagnosis.Report, models []string) {
	worker := shell.Command("worker")
	cmd := exec.CommandContext(ctx, worker, append(append([]string{"probe", "-o", "json"}, s.GivenSettings()...),
		models...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var found views.Diagnosis
	switch _, ended := errors.AsType[*exec.ExitError](err); {
	case err != nil && !ended:
		d.Add(diagnosis.Fail, "probe", "the worker program cannot be run: "+err.Error(),
			"put it into the folder of turnctl or on the PATH, or run \"worker probe\" where workers run")
	case json.Unmarshal(out.Bytes(), &found) != nil:
		d.Add(diagnosis.Fail, "probe", fmt.Sprintf("%s probe failed: %s", worker,
			s.Masker.String(strings.TrimSpace(errs.String()))), "")
	case len(found.Checks) == 0:
		d.Add(diagnosis.OK, "probe", "no model to probe: agents use the demo only", "")
	default:
		for _, c := range found.Checks {
			d.Add(c.Verdict, c.Name, c.Found, c.Advice)
		}
	}
}
