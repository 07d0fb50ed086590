package storage_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// passing ignores what differs with each look: durations, and the time of the look itself.
var passing = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(time.Duration(0)), cmp.Exporter(func(reflect.Type) bool { return true }),
	cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".Now" || p.Last().String() == ".QueryTime"
	}, cmp.Ignore()),
}

// changing are the methods among those that read that change something, whose result is the time, or that also return
// what other tests do with roles of the server.
var changing = map[string]bool{
	"TokenStore.CreateToken": true, "TokenStore.SignIn": true, "WebhookStore.ClaimDeliveries": true,
	"MCPStore.SeeMCPTools": true,
	"Store.Claim":          true, "Store.ReserveSpend": true, "DB.Now": true, "DB.Migrate": true, "DB.AcceptFrom": true,
	"DB.Accept": true, "DB.Enqueue": true, "DB.RightsToRevoke": true,
	"AskStore.AnswerAsk": true, "Responses.AcceptResponse": true, "Responses.CreateConversation": true,
	"Store.BindGrant": true, "WebhookStore.EndDelivery": true,
}

// TestASecondLookShowsTheSame calls each method that returns something twice, with two rows: what it returns differs
// only where time has passed. A time that is made up by the program differs.
func TestASecondLookShowsTheSame(t *testing.T) {
	c := newCaller(t)
	c.home.HeartBeat("clerk", 3, time.Minute)
	for _, id := range []int64{1, 2} {
		c.id = id
		for _, store := range c.stores()[:11] {
			if reflect.TypeOf(store) == reflect.TypeFor[*operate.Control]() {
				continue
			}
			for m := range reflect.TypeOf(store).Methods() {
				name := strings.TrimPrefix(reflect.TypeOf(store).Elem().String(), "*")
				name = name[strings.Index(name, ".")+1:] + "." + m.Name
				if m.Type.NumIn() < 2 || m.Type.In(1) != contextType || m.Type.NumOut() < 2 || changing[name] {
					continue
				}
				first, err := c.with(t.Context(), reflect.ValueOf(store), m)
				again, errAgain := c.with(t.Context(), reflect.ValueOf(store), m)
				if diff := cmp.Diff(first, again, passing); diff != "" || (err == nil) != (errAgain == nil) {
					t.Errorf("%s of %d: errors %v and %v (-first +second):\n%s", name, id, err, errAgain, diff)
				}
			}
		}
	}
}

// same compares the fields of got that are set with those of want.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for field, value := range g.Fields() {
		other := w.FieldByName(field.Name)
		if !field.IsExported() || !other.IsValid() || value.IsZero() || value.Type() != other.Type() {
			continue
		}
		if diff := cmp.Diff(other.Interface(), value.Interface(), passing); diff != "" {
			t.Errorf("%s has another %s than operators see (-shown +got):\n%s", what, field.Name, diff)
		}
	}
}

// TestWorkersSeeWhatOperatorsSee sends a message whose fields all differ, and compares what the scheduler and workers
// get of it and of its turn with what operators see.
func TestWorkersSeeWhatOperatorsSee(t *testing.T) {
	h := newEnv(t)
	h.Turn("another message, so that the ids of messages and turns differ").Cancel(t)
	h.Submit("desk", "other", "x")
	id, err := h.Enqueue(t.Context(), turnkeeper.Submission{
		Agent: "desk", User: "ann", Conversation: "talk", Body: "text", Key: "key", Priority: 3,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	if err != nil {
		t.Fatal(err)
	}
	var d *storagetest.Dispatch
	for _, granted := range h.Dispatch("worker-1") {
		if granted.Record.Message.ID == id {
			d = granted
		}
	}
	h.Exec(
		"update turnkeeper.messages set due_at = due_at - interval '1 minute', accepted_at = accepted_at - interval '2 minutes' where id = $1", id)
	h.Exec("update turnkeeper.turns set created_at = created_at - interval '3 minutes' where id = $1", d.Grant.TurnID)
	start := storagetest.Start(storagetest.Key(1, 1), "nonce of the start", 1, turnkeeper.EffectKeyed)
	start.Detached = time.Hour
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectKeyed), Starts: []turnlog.CallStart{start},
		Results: []turnlog.CallResult{
			{Key: start.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: "runs", OutputID: "out"},
		}})
	record, err := h.Load(t.Context(), d.Grant.TurnID, d.Grant.GrantID)
	if err != nil {
		t.Fatal(err)
	}
	view, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	message, err := h.Message(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := h.Claim(t.Context(), turnlog.CallRef{TurnID: d.Grant.TurnID, Key: start.Key, Attempt: 1},
		"worker-2", []string{"tool"})
	if err != nil {
		t.Fatal(err)
	}
	if claimed.TraceParent != message.TraceParent || claimed.Turn.User == "" || claimed.Turn.Conversation == "" ||
		claimed.Turn.CreatedAt.IsZero() {
		t.Errorf("the claim has trace parent %s and turn %+v", claimed.TraceParent, claimed.Turn)
	}
	same(t, "the claimed turn", view.Turn, claimed.Turn)
	same(t, "the claimed call", view.Rounds[0].Calls[0], claimed.Call)
	same(t, "the record's turn", view.Turn, record.Turn)
	same(t, "the record's message", message.Message, record.Message)
	same(t, "the record's call", view.Rounds[0].Calls[0], record.Rounds[0].Calls[0])
	whose, err := h.WhoseTurn(t.Context(), d.Grant.TurnID)
	if want := (turnkeeper.ConversationKey{Agent: "desk", User: "ann", Name: "talk"}); err != nil || whose != want {
		t.Errorf("the turn is of %+v, error %v", whose, err)
	}
}
