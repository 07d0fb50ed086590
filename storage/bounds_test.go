package storage_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/storagetest"
)

// TestBoundsOfTheSchema compares bounds that stand in the schema with those in Go.
func TestBoundsOfTheSchema(t *testing.T) {
	h := newEnv(t)
	check := func(constraint string) string {
		return fmt.Sprintf(`select pg_get_constraintdef(oid) from pg_constraint
			where connamespace = 'turnkeeper'::regnamespace and conname = '%s'`, constraint)
	}
	for query, want := range map[string]string{
		"select turnkeeper.lowest_priority() || ' to ' || turnkeeper.highest_priority()": fmt.Sprintf("%d to %d",
			turnkeeper.MinPriority, turnkeeper.MaxPriority),
		"select obj_description(to_regproc('turnkeeper.enqueue'))": fmt.Sprintf(" priority: %d to %d, ",
			turnkeeper.MinPriority, turnkeeper.MaxPriority),
		check("settings_max_sender_priority_check"): fmt.Sprintf("(max_sender_priority <= %d)",
			turnkeeper.MaxPriority),
		check("settings_max_message_bytes_check"): fmt.Sprintf("(max_message_bytes <= %d)",
			turnkeeper.LargestMessage),
		check("body_in_range"): fmt.Sprintf("(octet_length(body) <= %d)", turnkeeper.LargestMessage),
	} {
		if got := storagetest.One[string](h, query); !strings.Contains(got, want) {
			t.Errorf("%s\n got %s\nwant %s", query, got, want)
		}
	}
}
