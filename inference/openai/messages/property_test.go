package messages_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
)

// TestBlocksInAnyPieces streams random blocks whose pieces are cut and interleaved at random, with pings and unknown
// events between them, and expects the blocks back.
func TestBlocksInAnyPieces(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var blocks [][]string // events of each block
		var want []map[string]any
		for i := range 1 + r.IntN(5) {
			events, block := randomBlock(r, i)
			blocks, want = append(blocks, events), append(want, block)
		}
		events := []string{begun}
		for i := range blocks { // blocks begin in order
			events = append(events, blocks[i][0])
			blocks[i] = blocks[i][1:]
			if r.IntN(2) == 0 {
				events, blocks = drain(r, events, blocks, i)
			}
		}
		events, _ = drain(r, events, blocks, len(blocks)-1)
		events = append(events, because("tool_use"), ended)
		res, err := generate(t, streaming(events...), openai.Profile{})
		if err != nil { // nothing but thinking
			if inference.ClassOf(err) != inference.ClassBadOutput {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		if res.Raw == nil {
			continue // text and calls say the same
		}
		expect, _ := json.Marshal(want) //nolint:errchkjson // texts
		if diff := cmp.Diff(decoded(t, expect), decoded(t, res.Raw)); diff != "" || res.Doubt != "" {
			t.Fatalf("seed %d: doubt %q, -want +got:\n%s\n%s", seed, res.Doubt, diff, strings.Join(events, "\n"))
		}
	}
}

// drain adds the remaining events of the first blocks up to the one at last, in any order between blocks.
func drain(r *rand.Rand, events []string, blocks [][]string, last int) ([]string, [][]string) {
	for {
		var left []int
		for i := range last + 1 {
			if len(blocks[i]) > 0 {
				left = append(left, i)
			}
		}
		if len(left) == 0 {
			return events, blocks
		}
		i := left[r.IntN(len(left))]
		events, blocks[i] = append(events, blocks[i][0]), blocks[i][1:]
		if r.IntN(4) == 0 {
			events = append(events, []string{ping, `{"type":"later","index":0}`}[r.IntN(2)])
		}
	}
}

// randomBlock returns the events of a block, and the block.
func randomBlock(r *rand.Rand, i int) ([]string, map[string]any) {
	at, text := strconv.Itoa(i), strings.Repeat("é🌍 \\ \"x\" ", r.IntN(4))
	pieces := func(kind, member string) (events []string) {
		for rest := []rune(text); len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			quoted, _ := json.Marshal(string(rest[:n])) //nolint:errchkjson // a text
			events = append(events, delta(at, `{"type":"`+kind+`","`+member+`":`+string(quoted)+`}`))
			rest = rest[n:]
		}
		return append(events, stopped(at))
	}
	switch r.IntN(4) {
	case 0:
		return append([]string{started(at, `{"type":"text","text":""}`)}, pieces("text_delta", "text")...),
			map[string]any{"type": "text", "text": text}
	case 1:
		events := append([]string{started(at, `{"type":"thinking","thinking":"","signature":""}`)},
			pieces("thinking_delta", "thinking")...)
		n := len(events) - 1
		events = append(events[:n:n], delta(at, `{"type":"signature_delta","signature":"s`+at+`"}`), stopped(at))
		return events, map[string]any{"type": "thinking", "thinking": text, "signature": "s" + at}
	case 2:
		block := `{"type":"later","of":{"a":` + at + `}}`
		return []string{started(at, block), stopped(at)},
			map[string]any{"type": "later", "of": map[string]any{"a": i}}
	}
	arguments := `{"deep":{"er":[{}]},"n":` + at + `}`
	cut := r.IntN(len(arguments) + 1)
	return call(at, "toolu_"+at, "clock", arguments[:cut], arguments[cut:]), map[string]any{"type": "tool_use",
		"id": "toolu_" + at, "name": "clock", "input": json.RawMessage(arguments)}
}

// TestLongAnswersTakeLinearMemory checks that four times the events do not take sixteen times the memory.
func TestLongAnswersTakeLinearMemory(t *testing.T) {
	for kind, member := range map[string]string{"text_delta": "text", "thinking_delta": "thinking",
		"signature_delta": "signature", "input_json_delta": "partial_json", "later_delta": "later"} {
		allocated := func(n int) uint64 {
			one := delta("0", fmt.Sprintf(`{"type":%q,%q:"word "}`, kind, member))
			events := []string{begun, started("0", `{"type":"text","text":""}`)}
			for range n {
				events = append(events, one)
			}
			s := streaming(join(events, stopped("0"), text("1", "hi"), because("end_turn"), ended)...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := s.client(t, openai.Profile{}).Generate(t.Context(), request, nil); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		if ratio := float64(allocated(2000)) / float64(allocated(500)); ratio > 8 {
			t.Errorf("%s: four times the events take %.1f times the memory", kind, ratio)
		}
	}
}
