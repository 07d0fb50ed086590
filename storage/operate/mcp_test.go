package operate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tools/mcp/mcpdef"
)

func TestMCPToolsArePinnedAsTheyWereSeenFirst(t *testing.T) {
	h := newEnv(t)
	seen := func(name, hash string) mcpdef.Tool {
		return mcpdef.Tool{Server: "s", Name: name, Seen: mcpdef.Definition{Description: "d " + hash,
			Schema: `{"a":"\u0000"}`, ReadOnly: true, Hash: hash}}
	}
	states := func(tools []mcpdef.Tool) map[string]string {
		all := map[string]string{}
		for _, tool := range tools {
			all[tool.Name] = tool.Pinned.Hash + " " + tool.Seen.Hash
			if tool.Gone {
				all[tool.Name] += " gone"
			}
		}
		return all
	}
	want := func(tools []mcpdef.Tool, err error, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, states(tools)); diff != "" || err != nil {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
	kept, err := h.SeeMCPTools(t.Context(), "s", []mcpdef.Tool{seen("a", "1"), seen("b", "1")})
	want(kept, err, map[string]string{"a": "1 1", "b": "1 1"})
	if len(kept) > 0 && (kept[0].Seen.Schema != `{"a":"\u0000"}` || !kept[0].Seen.ReadOnly ||
		kept[0].Pinned.Description != "d 1") {
		t.Errorf("%+v", kept[0])
	}
	kept, err = h.SeeMCPTools(t.Context(), "s", []mcpdef.Tool{seen("a", "2"), seen("c", "1")})
	want(kept, err, map[string]string{"a": "1 2", "b": "1 1 gone", "c": "1 1"})
	if names, err := h.PinMCPTools(t.Context(), "s", "a", "other"); len(names) != 0 || err != nil {
		t.Errorf("a hash that is not its own: %v, %v", names, err)
	}
	if names, err := h.PinMCPTools(t.Context(), "s", "", ""); !cmp.Equal(names, []string{"a"}) || err != nil {
		t.Errorf("%v, %v", names, err)
	}
	kept, err = h.SeeMCPTools(t.Context(), "s", nil)
	want(kept, err, map[string]string{"a": "2 2 gone", "b": "1 1 gone", "c": "1 1 gone"})
	if n, err := h.ForgetMCPTools(t.Context(), "s"); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if all, err := h.MCPTools(t.Context(), ""); len(all) != 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}

// Outputs that are attached to a result are stored with it.
func TestAttachedOutputs(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	r := storagetest.Round(1, turnkeeper.EffectNone)
	d.Write(t, turnlog.Entry{Round: r})
	read := storagetest.Result(r.Calls[0].Key, "", turnkeeper.CallSucceeded, "with two")
	for _, id := range []turnkeeper.OutputID{"one", "two"} {
		read.Attached = append(read.Attached, turnkeeper.Output{ID: id, Bytes: []byte{0, 1}, SizeBytes: 2,
			MediaType: "image/png", Description: "a dot", SHA256: "s"})
	}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{read}})
	for _, id := range []turnkeeper.OutputID{"one", "two"} {
		if o, err := h.DescribeOutput(t.Context(), d.Grant.TurnID, id); err != nil || o.MediaType != "image/png" ||
			o.SizeBytes != 2 {
			t.Errorf("%s: %+v, error %v", id, o, err)
		}
	}
}
