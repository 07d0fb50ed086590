package journal

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

func TestPastsAreBounded(t *testing.T) {
	var kept pasts
	rounds := []turnkeeper.Round{{Number: 1, Recipe: &turnkeeper.Recipe{},
		Calls: []turnkeeper.ToolCall{{Shown: strings.Repeat("x", 20_000)}}}}
	for id := int64(1); id <= 1000; id++ {
		kept.put(id, rounds)
		if known := kept.get([]dbsqlc.PastTurnsRow{{ID: id}}); len(known) != 1 || kept.bytes > maxPasts {
			t.Fatalf("turn %d: %d known, %d bytes", id, len(known), kept.bytes)
		}
	}
	sum := 0
	for _, those := range kept.turns {
		sum += sizeOf(those)
	}
	if kept.bytes != sum || sum < maxPasts*9/10 {
		t.Errorf("counted %d bytes, %d are kept, %d are allowed", kept.bytes, sum, maxPasts)
	}
	large := []turnkeeper.Round{{Text: strings.Repeat("x", maxPasts/2)}}
	if kept.put(1001, large); len(kept.get([]dbsqlc.PastTurnsRow{{ID: 1001}})) != 0 {
		t.Error("a turn that takes half of the room is kept")
	}
}
