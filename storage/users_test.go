package storage_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/storagetest"
)

// awkward are pieces of names: what the rule for lanes writes in another way, or puts between names, and other
// characters.
var awkward = []string{"", "a", "b", "main", "/", "%", "%2F", "%25", "2F", "@", "#", "\\", "'", " ", "ä", "日",
	"e\u0301", "'; --"}

func anyName(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteString(awkward[r.IntN(len(awkward))])
	}
	return b.String()
}

// TestLanesOfConversations checks that Go and SQL give a conversation the same lane, that no two have one, and that the
// lane names its agent.
func TestLanesOfConversations(t *testing.T) {
	h := newEnv(t)
	r := rand.New(rand.NewPCG(1, 2))
	keys := map[turnkeeper.ConversationKey]bool{}
	for len(keys) < 3000 {
		keys[turnkeeper.ConversationKey{Agent: []string{"a", "a-b", "a_b"}[r.IntN(3)], User: anyName(r),
			Name: "c" + anyName(r)}] = true
	}
	of := map[turnkeeper.Lane]turnkeeper.ConversationKey{}
	var agents, users, names, lanes []string
	for key := range keys {
		lane := key.Lane()
		if other, taken := of[lane]; taken {
			t.Errorf("%+v and %+v have the lane %s", key, other, lane)
		}
		if lane.Agent() != key.Agent {
			t.Errorf("the agent of lane %s is %s", lane, lane.Agent())
		}
		of[lane] = key
		agents, users, names, lanes = append(agents, key.Agent), append(users, key.User), append(names, key.Name),
			append(lanes, string(lane))
	}
	differ := texts(h,
		`select k.lane || ' in Go, and ' || turnkeeper.lane_of(k.agent, k.user_name, k.name, true) || ' in SQL'
		from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as k (agent, user_name, name, lane)
		where k.lane <> turnkeeper.lane_of(k.agent, k.user_name, k.name, true) or turnkeeper.lane_of(k.agent, k.user_name, k.name, false) <> k.agent`,
		agents, users, names, lanes)
	for _, what := range differ {
		t.Error(what)
	}
}

// TestNamesOfUsers checks that Go and SQL accept the same names, and that the table refuses the others.
func TestNamesOfUsers(t *testing.T) {
	h := newEnv(t)
	names := []string{"", "a", strings.Repeat("a", 200), strings.Repeat("a", 201), strings.Repeat("ä", 100),
		strings.Repeat("ä", 101), " ", "'; --"}
	for c := rune(1); c < 0xa3; c++ {
		names = append(names, "x"+string(c))
	}
	for _, name := range names {
		good := turnkeeper.ConversationKey{User: name}.CheckUser() == nil
		if got := storagetest.One[bool](h, "select turnkeeper.user_may_be($1)", name); got != good {
			t.Errorf("%q: %t in SQL, %t in Go", name, got, good)
		}
		_, err := h.Pool().Exec(t.Context(), "select turnkeeper.enqueue('clerk', 'x', user_name => $1)", name)
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "invalid message: the user's name") {
			t.Errorf("%q is enqueued: %v", name, err)
		}
		_, err = h.Pool().Exec(t.Context(),
			"insert into turnkeeper.messages (agent, user_name, lane, body) values ('clerk', $1, 'clerk', 'x')", name)
		if (err == nil) != good {
			t.Errorf("%q is inserted: %v", name, err)
		}
	}
	latin := turnkeeper.ConversationKey{Agent: "clerk", User: "a\xff"}
	if err := latin.CheckUser(); err == nil || !strings.Contains(err.Error(), "not valid UTF-8") {
		t.Errorf("a name in Latin-1: %v", err)
	}
	if _, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", User: latin.User,
		Body: "x"}); err == nil {
		t.Error("a name in Latin-1 is enqueued")
	}
}

// TestAUserInEachWayToSend enqueues for a user by position, by name and by JSON, and reads it back with the rights of a
// sender.
func TestAUserInEachWayToSend(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	for i, sql := range []string{
		"select turnkeeper.enqueue('clerk', 'x', 'main', 'k', 0, null, null, 'anna')",
		"select turnkeeper.enqueue('clerk', 'x', idempotency_key => 'k', user_name => 'anna')",
		`select turnkeeper.enqueue_message('{"agent": "clerk", "user": "anna", "body": "x", "idempotency_key": "k", "priority": null}')`,
	} {
		if id := app.one(sql); id != app.one("select min(id) from turnkeeper.my_messages") {
			t.Errorf("way %d gives message %d", i, id)
		}
	}
	app.one("select turnkeeper.enqueue('clerk', 'y', idempotency_key => 'k')") // nobody's key
	if got := app.refused(
		"select turnkeeper.enqueue('clerk', 'y', idempotency_key => 'k', user_name => 'anna')"); !strings.Contains(
		got, "TK006") {
		t.Errorf("another message with the key: %s", got)
	}
	if got := app.refused(
		`select turnkeeper.enqueue_message('{"agent": "clerk", "user": 7, "body": "x"}')`); !strings.Contains(got,
		"user must be a string") {
		t.Errorf("a number as the user: %s", got)
	}
	for name, want := range map[string]string{
		"repeat('a', 201)": "is longer than 200 bytes", "repeat('a', 199) || chr(7)": "has a control character",
	} {
		if got := app.refused("select turnkeeper.enqueue('clerk', 'y', user_name => " + name + ")"); !strings.Contains(
			got, "the user's name "+want) {
			t.Errorf("the user %s: %s", name, got)
		}
	}
	users := texts(h, "select user_name from turnkeeper.messages order by id")
	if fmt.Sprint(users) != "[anna ]" {
		t.Errorf("the users are %q", users)
	}
	if n := app.one("select count(*) from turnkeeper.my_messages where user_name = 'anna'"); n != 1 {
		t.Errorf("the sender sees %d messages of anna", n)
	}
}
