package mcp_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// TestBulkyResultsTakeLittleMemory runs six calls at once, in six turns, of an MCP tool that answers with
// 15 MB of arrays, and as many of a program that prints 50 MB, and reads the peak of the worker's memory.
func TestBulkyResultsTakeLittleMemory(t *testing.T) {
	e := env.New(t)
	addToolServer(e, `{"look": "many []"}`, "    effect: none\n")
	e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+`tools:
  print:
    description: Prints.
    effect: none
    command: [/bin/sh, -c, "yes 'a line of text' | head -c 50000000"]
`)
	e.WriteAgent("clerk", "tools: [print]", "mcp_servers: {shelf: [look]}", "lane: conversation")
	e.Model.Then(env.Rounds(
		inferencetest.Calls(inferencetest.Call{ID: "look", Name: "shelf__look"}, inferencetest.Call{ID: "print",
			Name: "print"}),
		inferencetest.Text("done")))
	w := e.StartWorker("--worker-slots", "6", "--max-result-memory", "192", "--tool-timeout", "5m", "--max-duration",
		"3m", "--async=false")
	before := peakMemory(t, w)
	var ids []int64
	for i := range 6 {
		ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue($1, $2, $3)", "clerk", "Look.", fmt.Sprint(i)))
	}
	e.AwaitClosed(ids...)
	for _, id := range ids {
		calls := e.TurnOf(id).CallsByWireID()
		if look := calls["look"]; look.State != "failed" || !strings.Contains(look.Result, "1000000 JSON values") {
			t.Errorf("look is %s: %.300s", look.State, look.Result)
		}
		if print := calls["print"]; print.State != "succeeded" {
			t.Errorf("print is %s: %.300s", print.State, print.Result)
		}
	}
	if n := env.Query[int](e,
		"select count(*) from outputs where raw_bytes = 50000000 and size_bytes = 10000000 and incomplete"); n != 6 {
		t.Errorf("%d results of the program are stored with 10 of 50 MB", n)
	}
	after := peakMemory(t, w)
	t.Logf("the worker's peak was %d MiB, and is %d MiB", before>>10, after>>10)
	if after-before > 500<<10 {
		t.Errorf("the results take %d MiB", (after-before)>>10)
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory returns the peak of a process's resident memory, in KiB.
func peakMemory(t *testing.T, p *env.Process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := highWater.FindSubmatch(status)
	if found == nil {
		t.Fatalf("no peak in %s", status)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
