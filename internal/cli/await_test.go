package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/golden"
)

// closeByConversation closes each message as the name of its conversation says: STATE, "quiet" without a reply,
// "silent" with an empty one.
const closeByConversation = `set local session_replication_role = replica;
	update turnkeeper.messages set state = split_part(conversation, ' ', 1), closed_at = now(), attempts = 1,
		last_error = case when conversation = 'failed' then E'the model\nsaid no' end;
	insert into turnkeeper.turns (message_id, attempt, agent, user_name, conversation, lane, trigger, definition_hash, state, token, grant_id,
		lease_until, ended_at, stop_reason)
		select id, 1, agent, user_name, conversation, lane, 'message', repeat('a', 64), state, 1, gen_random_uuid(), now(), now(),
			case state when 'succeeded' then 'none' when 'degraded' then 'max_rounds' else 'inference_error' end
		from turnkeeper.messages where closed_at is not null;
	update turnkeeper.messages m set turn_id = t.id from turnkeeper.turns t where t.message_id = m.id;
	insert into turnkeeper.replies (message_id, turn_id, agent, user_name, conversation, outcome, stop_reason, body, calls, sent_by)
		select message_id, id, agent, user_name, conversation, state, stop_reason,
			case when conversation like '% silent' then '' else E'It is \x1b[31m' || conversation || E'.\n' end, '[]', 'role:x'
		from turnkeeper.turns where conversation not like '% quiet'`

// TestWhatAWaitSays compares what enqueue --wait says of each outcome of a message with testdata, and its exit code.
func TestWhatAWaitSays(t *testing.T) {
	t.Parallel()
	env, db := somewhere(t)
	outcomes := []string{
		"succeeded", "succeeded quiet", "degraded", "degraded silent", "failed", "failed quiet", "cancelled",
		"cancelled quiet",
	}
	send := func(outcome string, more ...string) ran {
		args := append([]string{"--agent", "echo", "--user", "anna", "--conversation", outcome, "--key", outcome},
			more...)
		return run(t, enqueue.Program(), env, "", append(args, "hi")...)
	}
	for _, outcome := range outcomes {
		if got := send(outcome); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	db.Exec(closeByConversation)
	if err := db.PauseScheduler(t.Context(), "repairs\x1b"); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, outcome := range outcomes {
		for _, form := range [][]string{nil, {"--json"}, {"--wait"}, {"--wait", "--json"}} {
			got := send(outcome, form...)
			fmt.Fprintf(&b, "$ %s %s\n%s", outcome, strings.Join(form, " "), got.stdout)
			if got.stderr != "" {
				fmt.Fprintf(&b, "stderr: %s", clockTimes.ReplaceAllString(got.stderr, "<time>"))
			}
			fmt.Fprintf(&b, "exit code %d\n\n", got.code)
		}
	}
	golden.File(t, "testdata/await.txt", strings.ReplaceAll(b.String(), "\x1b", "^"))
}

// await runs enqueue --wait, calls seen with each line of its standard error, and returns its exit code and these
// lines.
func await(ctx context.Context, env map[string]string, seen func(line string)) (code int, said []string) {
	output, stderr := io.Pipe()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		code = enqueue.Program().Run(ctx, context.WithoutCancel(ctx), shell.Environment{
			Args: []string{"--agent", "echo", "--key", "k", "--wait", "hi"}, Stderr: stderr,
			Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		})
		stderr.Close()
	})
	for lines := bufio.NewScanner(output); lines.Scan(); {
		said = append(said, lines.Text())
		seen(lines.Text())
	}
	waiting.Wait()
	return code, said
}

// TestAMessageIsPurgedMeanwhile deletes a message while enqueue waits for its reply: it ends at once, with the exit
// code of what is not there.
func TestAMessageIsPurgedMeanwhile(t *testing.T) {
	t.Parallel()
	env, db := somewhere(t)
	code, said := await(t.Context(), env, func(line string) {
		if strings.HasPrefix(line, "no worker is running") {
			db.Exec("set local session_replication_role = replica; delete from turnkeeper.messages")
		}
	})
	if last := said[len(said)-1]; code != 3 || !strings.Contains(last, "the wait failed; message 1 stays accepted") {
		t.Errorf("exit code %d: %q", code, said)
	}
}

// TestAWaitTellsWhyOnce waits for a message whose attempts have failed and that the scheduler holds up. Each is told
// once.
func TestAWaitTellsWhyOnce(t *testing.T) {
	t.Parallel()
	env, db := somewhere(t)
	db.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, idempotency_key, attempts, last_error)
		values ('echo', 'main', 'echo', 'hi', 'k', 2, E'the model\nsaid no')`)
	if err := db.PauseScheduler(t.Context(), "repairs"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, said := await(ctx, env, func(line string) {
		switch {
		case strings.HasPrefix(line, "the message waits: the scheduler"): // a second attempt fails
			db.Exec("update turnkeeper.messages set attempts = 3, last_error = 'no again'")
			db.Exec("notify turnkeeper_turns")
		case strings.HasPrefix(line, "attempt 3"):
			stop()
		}
	})
	var told []string
	for _, line := range said {
		if strings.HasPrefix(line, "attempt") || strings.HasPrefix(line, "the message waits") {
			told = append(told, clockTimes.ReplaceAllString(line, "<time>"))
		}
	}
	want := []string{
		"attempt 2 failed: the model said no; it is retried after a pause",
		"the message waits: the scheduler has been paused since <time>: repairs",
		"attempt 3 failed: no again; it is retried after a pause",
	}
	if !slices.Equal(told, want) {
		t.Errorf("it tells %q", told)
	}
}
