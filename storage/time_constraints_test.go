package storage_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// TestTimeRules calls the functions that depend on the time, below, at and above each limit. NOW is
// the time of the statement.
func TestTimeRules(t *testing.T) {
	h := newEnv(t)
	h.Exec(
		"insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, slots, roles, takeover_after) values ('live', 'h', 1, 'v', 1, '{worker}', '15 s')")
	h.Exec(
		"insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, slots, roles, takeover_after, beat_at) values ('silent', 'h', 1, 'v', 1, '{worker}', '15 s', now() - interval '1 minute')")
	h.Exec(
		"insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, slots, roles, takeover_after, stopped_at) values ('stopped', 'h', 1, 'v', 1, '{worker}', '15 s', now())")
	bell := storage.NewNotifier(h.URL, zap.NewNop())
	bell.Worker = "here"
	rings, _ := bell.Subscribe(storage.TopicInbox)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bell.Run(ctx)
	}()
	awaitRing(t, "the bell listens", rings)
	queue := func(worker string) string {
		return fmt.Sprintf("'turns_' || left(encode(sha256('%s'), 'hex'), 32)", worker)
	}
	for call, want := range map[string]string{
		"lease_over(NOW - '240 s', NOW + '1 us')": "false",
		"lease_over(NOW - '240 s', NOW)":          "true",
		"lease_over(NOW + '10 s', NOW + '240 s')": "false",
		// granted before the clock was set back
		"lease_over(NOW + '10 s' + '1 us', NOW + '250 s')":                      "true",
		"heartbeat_overdue(NOW - '15 s', '15 s')":                               "true",
		"heartbeat_overdue(NOW - '15 s' + '1 us', '15 s')":                      "false",
		"heartbeat_overdue(NOW - '1 h', '0')":                                   "false",
		"heartbeat_overdue(NOW + '10 s', '15 s')":                               "false",
		"heartbeat_overdue(NOW + '10 s' + '1 us', '15 s')":                      "true",
		"heartbeat_overdue(NOW + '1 h', '0')":                                   "false",
		"heartbeat_overdue(null, null)":                                         "null",
		"lane_pauses(NOW)":                                                      "false",
		"lane_pauses(NOW + '1 us')":                                             "true",
		"lane_pauses(NOW + '130 s')":                                            "true",
		"lane_pauses(NOW + '130 s' + '1 us')":                                   "false",
		"lane_pauses(null)":                                                     "null",
		"worker_gone(null, NOW, '15 s')":                                        "false",
		"worker_gone(NOW, NOW, '15 s')":                                         "true",
		"worker_gone(null, NOW - '15 s', '15 s')":                               "true",
		"worker_gone(null, null, null)":                                         "null",
		"run_overdue(NOW - '1 h', NOW - '30 s', '1 h', NOW)":                    "true",
		"run_overdue(NOW - '1 h', NOW - '29 s', '1 h', NOW)":                    "false",
		"run_overdue(NOW + '10 s', NOW + '1 h', '60 s', null)":                  "false",
		"run_overdue(NOW + '11 s', NOW + '1 h', '60 s', null)":                  "true", // its worker is unknown
		"run_overdue(NOW + '11 s', NOW + '1 h', '60 s', NOW)":                   "false",
		"run_overdue(NOW + '11 s', NOW + '1 h', '60 s', NOW + '10 s')":          "false",
		"run_overdue(NOW + '11 s', NOW + '1 h', '60 s', NOW + '10 s' + '1 us')": "true",
		"run_overdue(NOW + '11 s', NOW + '1 h', '60 s', NOW - '90 s')":          "true",
		"run_overdue(NOW + '11 s', NOW + '1 h', '60 s', NOW - '89 s')":          "false",
		"fetch_overlooked(NOW - '5 minutes')":                                   "true",
		"fetch_overlooked(NOW - '5 minutes' + '1 us')":                          "false",
		"fetch_overlooked(NOW + '10 s')":                                        "false",
		"fetch_overlooked(NOW + '10 s' + '1 us')":                               "true",
		"worker_present('here')":                                                "true",
		"worker_present('gone')":                                                "false",
		"silent_from(null)":                                                     "null",
		"owner_gone('turns')":                                                   "false",
		"owner_gone('turns_of_nobody')":                                         "true",
		"owner_gone('detached_of_nobody')":                                      "false",
		"owner_gone(" + queue("live") + ")":                                     "false",
		"owner_gone(" + queue("Live") + ")":                                     "true",
		"owner_gone(" + queue("silent") + ")":                                   "true",
		"owner_gone(" + queue("stopped") + ")":                                  "true",
	} {
		sql := strings.NewReplacer("NOW", "statement_timestamp()", "+ '", "+ interval '", "- '",
			"- interval '").Replace(call)
		if got := storagetest.One[string](h, "select coalesce(turnkeeper."+sql+"::text, 'null')"); got != want {
			t.Errorf("%s is %s", call, got)
		}
	}
	h.Exec("update turnkeeper.settings set silence_from = now() - interval '1 minute'")
	if !storagetest.One[bool](h,
		"select turnkeeper.silent_from(now()) = now() and turnkeeper.silent_from(now() - interval '2 minutes') = silence_from from turnkeeper.settings") {
		t.Error("silence does not count from silence_from")
	}
	stop()
	<-ended
	for deadline := time.Now().Add(storagetest.Patience); storagetest.One[bool](h,
		"select turnkeeper.worker_present('here') from pg_sleep(0.01)"); {
		if time.Now().After(deadline) {
			t.Fatal("a process that is gone is present")
		}
	}
}
