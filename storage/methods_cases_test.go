package storage_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tools/mcp/mcpdef"
)

// notCalled are methods that no case calls, with the reason.
var notCalled = map[string]string{
	"Tick.Try":                        "it takes a function: see package grants",
	"Reports.Check":                   "it reads everything: see package operate",
	"journal.Store.Complete":          "Load calls it",
	"journal.Store.LoadPatiently":     "it is Load, tried again",
	"journal.Store.EndOne":            "Tick.Close calls it",
	"journal.Store.EndCall":           "Arrive and Tick.EndCall call it",
	"journal.Store.RunAgain":          "Release and Tick.RunAgain call it",
	"journal.Store.AddEvents":         "Tick.Close calls it",
	"Writer.Transact":                 "it takes a function: see package journal",
	"grants.Store.InTick":             "every case of a tick calls it",
	"grants.Store.Handed":             "it needs a tick that is committed: see package grants",
	"journal.Store.CompletePatiently": "it is Complete, tried again",
	"DB.CheckSessions":                "TestAPoolerThatSharesSessions",
	"DB.CheckTables":                  "TestTablesThatAreMissing",
	"DB.Migrate":                      "TestMigrationsOfAnEmptyDatabase",
	"DB.Migrations":                   "TestMigrationsSayWhichProgramsGoOn",
	"DB.NewerMigrations":              "TestADatabaseThatANewerProgramMigrated",
	"DB.Ping":                         "it sends no statement",
	"DB.RecheckWrites":                "it sends what TryWrite does: TestTryWrite",
	"DB.RightsToRevoke":               "TestRightsToRevoke",
	"DB.ServerFacts":                  "what it returns is of the server",
	"DB.TryWrite":                     "TestTryWrite",
}

// search is a search that each field restricts.
var search = operate.Search{Page: operate.Page{Agent: "clerk", User: "ann", State: "succeeded", Limit: 7, Cursor: 111},
	Conversation: "c1"}

func readCases(at func(int) time.Time) []methodCase {
	page := operate.Page{Agent: "clerk", User: "ann", State: "succeeded", Limit: 3, Cursor: 500}
	from, words, failed := search, search, operate.Search{ErrorClass: "auth"}
	from.Since, from.Until = at(-210), at(-1)
	words.Words = "tea"
	ann := turnkeeper.ConversationKey{Agent: "clerk", User: "ann", Name: "c1"}
	return []methodCase{
		on("Views.Agents"), on("Views.OpenTurns", 3), on("Views.FindMessages", search), on("Views.FindMessages", from),
		on("Views.FindMessages", words), on("Views.FindMessages", failed),
		on("Views.FindMessages", operate.Search{Page: operate.Page{Limit: 3}}),
		on("Views.FindMessages", operate.Search{Page: operate.Page{User: "bob"}}),
		on("Views.FindMessages", operate.Search{Page: operate.Page{Agent: "desk"}}),
		on("Views.FindTurns", search), on("Views.FindTurns", from), on("Views.FindTurns", words),
		on("Views.FindTurns", failed), on("Views.FindTurns", operate.Search{Page: operate.Page{Limit: 3}}),
		on("Views.Transcript", operate.Page{Agent: "clerk", User: "ann", Limit: 9}, "c1"),
		on("Views.Message", 101), on("Views.Message", 109), on("Views.Message", 115), on("Views.Message", 9),
		on("Views.Messages", page), on("Views.Messages", operate.Page{}),
		on("Views.Replies", operate.Page{Cursor: 400}),
		on("Views.Replies", operate.Page{Agent: "clerk", User: "bob", TopOnly: true, Cursor: 2, Limit: 4}),
		on("Views.LatestReplies", operate.Page{Agent: "clerk", User: "ann", TopOnly: true, Cursor: 402, Limit: 5}),
		on("Views.LatestReplies", operate.Page{}), on("Views.ReplyTo", 108), on("Views.ReplyTo", 110),
		on("Views.Output", "out-201"), on("Views.Output", "out-208"), on("Views.Output", "out-209"),
		on("Views.FindOutput", "out-210"), on("Views.ReadOutput", 208, "out-208", 8, 13),
		on("Views.RetriesOf", 109), on("Views.RetriesOf", 115), on("Views.Schedules"), on("Views.Turns", page),
		on("Views.Turns", operate.Page{Agent: "desk"}), on("Views.LatestTurn", "clerk"), on("Views.TurnsOf", 109),
		on("Views.ViewTurn", 201), on("Views.ViewTurn", 204), on("Views.ViewTurn", 206), on("Views.ViewTurn", 207),
		on("Views.ViewTurn", 208), on("Views.ViewTurn", 209), on("Views.ViewTurn", 9),
		on("Views.Events", 201, 2, 3), on("Views.Events", 208, 0, 20_000), on("Views.WhoseTurn", 203),
		on("Views.Definition", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
		on("Views.WaitingMessage", 111), on("Views.WatchedMessages", []turnkeeper.MessageID{101, 109, 115}),

		on("Reports.Aside"), on("Reports.CountAside"), on("Reports.Totals", 3*time.Hour), on("Reports.Queue"),
		on("Reports.DaySpend"), on("Reports.LongWaits", 20*time.Minute), on("Reports.LossyTurns", 4*time.Hour),
		on("Reports.Lanes", operate.Page{Agent: "desk", Limit: 5, Cursor: 1}), on("Reports.Lanes", operate.Page{}),
		on("Reports.Workers"), on("Reports.Levels"), on("Reports.Models"), on("Reports.KeptFor"),
		on("Reports.SchedulerSettings"), on("Reports.StoredParts"),

		on("DB.AgentsToTry", []string{"clerk", "desk"}), on("DB.CurrentAgent", "clerk"), on("DB.CurrentAgent", "old"),
		on("DB.CurrentAgent", "none"), on("DB.Encoding"), on("DB.Now"),

		on("AskStore.ListAsks", operate.AskFilter{}),
		on("AskStore.ListAsks", operate.AskFilter{State: asks.Answered, Agent: "clerk", User: "ann", Turn: 208,
			Before: 304, Limit: 2}),
		on("AskStore.Ask", 301), on("AskStore.Ask", 303), on("AskStore.Ask", 304), on("AskStore.Ask", 306),
		on("AskStore.JournaledCalls", at(-200), nil), on("AskStore.AskSender", 301), on("AskStore.CountOpenAsks",
			[]string{"clerk", "desk"}, 5),
		on("AskStore.CountOpenAsks", []string{"clerk"}, 1),

		on("Responses.Response", 101), on("Responses.Response", 108), on("Responses.HeadsWithHistory", ann,
			[]byte{0xa8}),
		on("Responses.HeadOf", ann), on("Responses.Saids", ann, []turnkeeper.MessageID{101, 108}),
		on("Responses.CreatedConversation", "conv-new", 701, "ann"), on("Responses.CreatedConversation",
			"conv-any", 702, ""),

		on("TokenStore.FindSession", "none"), on("TokenStore.FindSession", "session"), on("TokenStore.Tokens"),
		on("TokenStore.FindToken", "none"),
		on("TokenStore.FindToken", "secret"),
		on("TokenStore.AnyToken"),
		on("WebhookStore.NextDelivery", "hook"), on("WebhookStore.NextDelivery", "none"), on("WebhookStore.Webhooks"),
		on("WebhookStore.Webhook", "rest"), on("WebhookStore.Deliveries", "hook", operate.Page{Cursor: 700}),
		on("WebhookStore.Deliveries", "hook", operate.Page{State: "pending", Agent: "clerk", User: "ann", Limit: 6,
			Cursor: 604}),
		on("MCPStore.MCPTools", "linear"), on("MCPStore.MCPLogins"), on("MCPStore.MCPLogin", "linear"),
		on("MCPStore.MCPLogin", "notion"),

		on("grants.Store.EndsRequested", []turnkeeper.GrantID{ownGrant, "00000000-0000-0000-0000-000000000206"}),
		on("grants.Store.TakenGrants", []turnkeeper.GrantID{ownGrant, "00000000-0000-0000-0000-000000001209"}),
		on("grants.Store.HandedOnSince", 206), on("grants.Store.OthersMayTake", 205, "w4"),
		on("grants.Store.GrantBefore", 205, "00000000-0000-0000-0000-000000001215"),
		on("grants.Store.NextDue", at(-1)),

		on("journal.Store.CallIsOpen", turnlog.CallRef{TurnID: 204, Key: storagetest.Key(1, 2), Attempt: 1}),
		on("journal.Store.ClaimsHeld", []turnlog.ClaimID{"claim-7", "claim-9"}),
		on("journal.Store.FindExtraction", turnlog.ExtractionKey{SourceSHA256: "src-1", Query: "q",
			Model: "p/a", Prompt: 4}),
		on("journal.Store.Load", 201, ownGrant), on("journal.Store.Load", 206, "00000000-0000-0000-0000-000000000206"),
		on("journal.Store.Load", 206, ownGrant), on("journal.Store.ReadNote", turnkeeper.ConversationKey{Agent: "clerk",
			User: "ann"}, "todo"),
		on("journal.Store.ListNotes", turnkeeper.ConversationKey{Agent: "clerk", User: "ann"}),
		on("journal.Store.RecentCalls", "clerk", "mail", "hash-3", 200*time.Minute),
		on("journal.Store.ReadOutput", 208, "out-208", 8, 13), on("journal.Store.DescribeOutput", 201, "out-201"),
		on("journal.Store.RequestParts", "1111111111111111111111111111111111111111111111111111111111111111"),
		on("journal.Store.SummaryUpTo", turnkeeper.Turn{ID: 201, MessageID: 101, Agent: "clerk", User: "ann",
			Conversation: "c1"}, 33),
		on("journal.Store.RecordForRequest", 208), on("Writer.Arrivals"), on("Writer.NewMessage"),
		on("Writer.RequestParts", "2222222222222222222222222222222222222222222222222222222222222222"),
	}
}

func tickCases(at func(int) time.Time) []methodCase {
	lost := golden.Filled[granting.LostGrant](30)
	lost.TurnID, lost.Lane, lost.GrantID, lost.JobID, lost.MessageID, lost.WorkerID = 201, "clerk", ownGrant,
		501, 101, "w1"
	unclaimed := lost
	unclaimed.WorkerID = ""
	call := golden.Filled[granting.LostCall](40)
	call.Ref = turnlog.CallRef{TurnID: 204, Key: storagetest.Key(1, 2), Attempt: 1}
	late := call
	late.Alive = false
	slot := granting.SlotDecision{Schedule: golden.Filled[granting.DueSchedule](50), Slot: at(-4), NextDue: at(56)}
	slot.Schedule.Agent, slot.Schedule.Name = "desk", "hourly"
	skipped, invalid := slot, slot
	skipped.Skipped, invalid.Error, invalid.Slot = "level low", "it is no schedule", time.Time{}
	turn, message, own := golden.Filled[granting.Candidate](60), golden.Filled[granting.Candidate](80),
		golden.Filled[granting.Candidate](90)
	turn.New, turn.TurnID, turn.MessageID, turn.Lane, turn.Slot, turn.Trigger = false, 205, 105,
		"desk@ann/d3", "", "message"
	message.TurnID, message.MessageID, message.Lane, message.Slot, message.Trigger = 0, 113,
		"desk@ann/d6", "", "message"
	own.TurnID, own.MessageID, own.Lane, own.WorkerID, own.Slot, own.Trigger = 0, 115, "desk@bob/d8", "w4",
		"00000000-0000-0000-0000-000000000703", "message"
	turn.DefinitionHash, message.DefinitionHash, own.DefinitionHash = "", hashOf("b"), hashOf("b")
	ids := []turnkeeper.GrantID{"00000000-0000-0000-0000-000000000701", "00000000-0000-0000-0000-000000000702",
		"00000000-0000-0000-0000-000000000703"}
	outcome := golden.Filled[turnlog.Outcome](70)
	outcome.State, outcome.StopReason, outcome.Silent = turnkeeper.TurnDegraded, turnkeeper.StopWorkerLost, false
	return []methodCase{
		on("Tick.Snapshot", true), on("Tick.Snapshot", false), on("Tick.LostCalls", 9), on("Tick.RunAgain", call),
		on("Tick.RunAgain", late), on("Tick.EndCall", call, turnlog.CallResult{Key: storagetest.Key(1, 2),
			State: turnkeeper.CallFailed, Shown: "it was lost", Preview: "lost", Duration: 1501 * time.Millisecond}),
		on("Tick.Lost", 8), on("Tick.Requeue", lost), on("Tick.Requeue", unclaimed), on("Tick.CancelAsked", 201),
		on("Tick.Rounds", 208), on("Tick.OpenRound", 201, 1), on("Tick.Definition", 204),
		on("Tick.SettleCalls", 201, "unknown", "perhaps", "not run", "ended"),
		on("Tick.Close", lost, outcome, storagetest.Events(turnkeeper.EventTurnComplete)),
		on("Tick.Chains", []string{"p/b", "p/c"}), on("Tick.DueSchedules", 7), on("Tick.Fire", slot),
		on("Tick.Fire", skipped), on("Tick.Fire", invalid), on("Tick.Note", at(-1), "CD"),
		on("Tick.CountSilence", at(-2)),
		on("Tick.Hold", at(3), "a step"), on("Tick.Hold", time.Time{}, ""), on("Tick.MoveLanes"),
		on("Tick.ReadyTurns", 6, []string{"clerk"}, "old"), on("Tick.ReadyTurns", 6, nil),
		on("Tick.ReadyMessages", 5, []string{"desk"}, "mover"), on("Tick.ReadyMessages", 2, nil),
		on("Tick.ForgetAside"), on("Tick.SettleSpawned", true, 4), on("Tick.SettleSpawned", false, 3),
		on("Tick.ExpireAsks", 2), on("Tick.MoveLevels"), on("Tick.MoveHeld"),
		on("Tick.Note", at(-1), "CD"), on("Tick.RingHolders"),
		on("Tick.Grant", []granting.Candidate{turn, message, own}, ids, storagetest.TurnJob, 77*time.Second),
	}
}

func hashOf(agent string) (hash string) {
	for range 64 {
		hash += agent
	}
	return hash
}

func changeCases(at func(int) time.Time) []methodCase {
	answer := golden.Filled[asks.Answer](20)
	answer.Decision, answer.Answer, answer.Edited, answer.Hash, answer.By = asks.Approved, "", `{"euro":4}`, "", "ann"
	response := golden.Filled[operate.NewResponse](200)
	response.Submission = turnkeeper.Submission{Agent: "desk", User: "ann", Conversation: "d20",
		Body: "hello", Key: "k20"}
	response.Words = []operate.Words{{Text: "hello", Labels: []string{"private"}, Sources: []string{"a diary"}}}
	response.Strict, response.Previous, response.Follows, response.TokenID, response.Metadata = false, 108, 0, 701,
		map[string]string{"a": "b"}
	pin := golden.Filled[operate.Pin](30)
	pin.Agent, pin.Level = "clerk", "critical"
	token := golden.Filled[operate.Token](40)
	token.Scopes, token.Agents = []string{"send"}, []string{"desk"}
	tool := golden.Filled[mcpdef.Tool](50)
	login := golden.Filled[mcpdef.Login](60)
	login.Server, login.Revision = "slack", 43
	hook := golden.Filled[outbox.Webhook](70)
	hook.Name, hook.Origin, hook.Agents = "new", "https://new.example", []string{"clerk"}
	end := golden.Filled[outbox.DeliveryEnd](80)
	end.State = outbox.DeliveryPending
	dead := end
	dead.State, dead.Wait, dead.Status, dead.Error = outbox.DeliveryDead, 0, 0, ""
	beat := golden.Filled[presence.Heartbeat](90)
	beat.WorkerID = "w9"
	sent, plain := golden.Filled[turnkeeper.Submission](100), turnkeeper.Submission{Agent: "desk", Body: "Tea."}
	sent.Agent, sent.User, sent.Priority = "clerk", "ann", 3
	agents := []turnkeeper.AgentRegistration{golden.Filled[turnkeeper.AgentRegistration](120), {Name: "scout",
		DefinitionHash: strings.Repeat("c", 64)}}
	agents[0].DefinitionHash, agents[0].Levels = strings.Repeat("f", 64), []byte(`{"low": {}}`)
	spend := golden.Filled[grants.SpendRequest](5000)
	spend.Turn, spend.Agent, spend.Root, spend.Level, spend.Tokens = 201, "clerk", 0, "", 9
	tree := spend
	tree.Turn, tree.Agent, tree.Root, tree.Level = 206, "scout", 207, "normal"
	return []methodCase{
		on("AskStore.AnswerAsk", 301, answer), on("AskStore.AnswerAsk", 301, answer),
		on("AskStore.AnswerAsk", 9, answer),
		on("AskStore.AnswerAsk", 302, asks.Answer{Decision: asks.Answered, By: "bob", Channel: "http",
			Answer: `"tea"`}),
		on("Control.RetryAside", granting.Subject{Kind: "turn", ID: "202"}), on("Control.RetryAside",
			granting.Subject{}),
		on("Control.RetireAgent", "mover"), on("Control.RestoreAgent", "old"), on("Control.CancelWaiting",
			"mover", "moved"),
		on("Control.CancelTurn", 202, "too late"), on("Control.CancelTurn", 208, "too late"),
		on("Control.CancelMessage", 114, "not needed"), on("Control.CancelMessage", 101, "stop it"),
		on("Control.FinishTurn", 203, "be quick"), on("Control.FinishMessage", 104, "be brief"),
		on("Control.FinishMessage", 113, "be brief"), on("Control.PinLevel", pin), on("Control.UnpinLevel", "desk"),
		on("Control.ForgetPins"), on("Control.RetryFailed", operate.FailedScope{Agents: []string{"clerk"},
			ErrorClass: "auth", Since: at(-300)}), on("Control.Retry", 110, false), on("Control.Retry", 110, true),
		on("Control.Retry", 109, false), on("Control.Retry", 108, false), on("Control.Retry", 115, false),
		on("Control.Retry", 9, false), on("Control.PauseScheduler", "holidays"), on("Control.ResumeScheduler"),
		on("Control.EndHold"), on("Control.SetScheduler", 3*time.Second, 20_000), on("Control.SetScheduler", 0, 0),
		on("Control.OverrideSchedule", "desk", "hourly", "5 * * * *"), on("Control.PauseSchedule", "desk",
			"later", true, "why"),
		on("Control.RunSchedule", "clerk", "daily"), on("Control.RunSchedule", "clerk", "none"),
		on("Control.Purge", operate.PurgeScope{Agent: "clerk", User: "ann", Conversation: "c1", OlderThan: time.Hour,
			Undelivered: true, Dry: true}),

		on("Responses.AcceptResponse", response), on("Responses.ForgetConversations"),
		on("Responses.CreateConversation", operate.Created{ID: "conv-20", Metadata: map[string]string{"c": "d"},
			Items: json.RawMessage(`[{"say":"so"}]`)}, 701, "ann"),
		on("TokenStore.CreateToken", token), on("TokenStore.CreateToken", token), on("TokenStore.SignIn",
			"none", time.Hour),
		on("TokenStore.SignOut", "none"), on("TokenStore.RevokeToken", "past"), on("TokenStore.RevokeToken", "none"),
		on("WebhookStore.RegisterWebhook", hook), on("WebhookStore.SeeWebhooks", []string{"hook", "new"}),
		on("WebhookStore.ClaimDeliveries", "hook", "w4", 6, 5, time.Minute),
		on("WebhookStore.EndDelivery", outbox.DeliveryClaim{ID: 602, Webhook: "hook", Claim: "claim-602"}, end),
		on("WebhookStore.EndDelivery", outbox.DeliveryClaim{ID: 602, Webhook: "hook", Claim: "claim-602"}, dead),
		on("WebhookStore.Redeliver", "rest", 403), on("WebhookStore.Redeliver", "rest", 9),
		on("WebhookStore.RedeliverDead", "rest"), on("WebhookStore.PauseWebhook", "hook", "by hand"),
		on("WebhookStore.PauseWebhook", "none", "by hand"), on("WebhookStore.ResumeWebhook", "hook"),
		on("WebhookStore.RemoveWebhook", "rest"), on("WebhookStore.RemoveWebhook", "none"),
		on("WebhookStore.SweepDeliveries"),
		on("MCPStore.SeeMCPTools", "linear", []mcpdef.Tool{tool}), on("MCPStore.PinMCPTools", "linear",
			"issue", "seen-1"),
		on("MCPStore.ForgetMCPTools", "notion"),
		on("MCPStore.ClaimMCPLogin", "slack", 43, "claim-2", time.Minute), on("MCPStore.RenewMCPLogin",
			login, "claim-2"),
		on("MCPStore.ReleaseMCPLogin", "linear", "claim-linear", "it was revoked"),
		on("MCPStore.WantMCPScopes", "linear",
			[]string{"admin", "more"}), on("MCPStore.SaveMCPLogin", login), on("MCPStore.ForgetMCPLogin", "slack"),
		on("MCPStore.ForgetMCPLogin", "none"),

		on("grants.Store.GiveBackCalls", "w3", time.Minute, []turnkeeper.JobID{541, 542}, []turnlog.ClaimID{"claim-7"}),
		on("grants.Store.BindGrant", 206, "00000000-0000-0000-0000-000000000206", "w4"),
		on("grants.Store.ReserveSpend", spend), on("grants.Store.ReserveSpend", tree),
		on("grants.Store.SettleSpend", 901, 17), on("grants.Store.TickFailed", errUndo),
		on("grants.Store.TickFailed", nil),
		on("grants.Store.Beat", beat), on("grants.Store.StopBeating", "w4"),
		on("grants.Store.GiveBack", "w1", time.Minute, []turnkeeper.GrantID{ownGrant},
			[]turnkeeper.GrantID{"00000000-0000-0000-0000-000000000206"}),
		on("grants.Store.ForgetWorkers"),
		on("DB.Accept", sent), on("DB.Accept", sent), on("DB.Enqueue", plain),
		on("DB.AcceptFrom", storage.Sender{Token: 701}, sent), on("DB.AcceptFrom", storage.Sender{Token: 702,
			Operates: true}, plain),
		on("DB.RegisterAgents", agents), on("DB.RegisterEach", agents), on("DB.RingInbox"),
		on("DB.SetMaxMessageBytes", 12_345), on("DB.SetMaxSenderPriority", 5),
		on("Control.Expire", "events", time.Hour), on("Control.Expire", "outputs", 2*time.Hour),
		on("Control.Purge", operate.PurgeScope{Agent: "clerk", User: "bob", Undelivered: true}),
		on("Control.Purge", operate.PurgeScope{Agent: "desk", Notes: true}),
	}
}

func journalCases(at func(int) time.Time) []methodCase {
	claimed := turnlog.ClaimedCall{Ref: turnlog.CallRef{TurnID: 207, Key: storagetest.Key(1, 3), Attempt: 1},
		Claim: "claim-12"}
	other := turnlog.ClaimedCall{Ref: turnlog.CallRef{TurnID: 204, Key: storagetest.Key(1, 2), Attempt: 1},
		Claim: "claim-8"}
	result := golden.Filled[turnlog.CallResult](600)
	result.Key, result.State, result.Output.Bytes, result.Attached, result.Spawned = claimed.Ref.Key,
		turnkeeper.CallSucceeded, nil, result.Attached[:1], nil
	result.Attached[0].Text, result.Attached[0].Drafted, result.Output.Drafted = "", false, false
	result.Labels = []policy.Mark{{Label: policy.Untrusted, Source: "a page"}}
	late := result
	late.Key, late.Nonce, late.Labels, late.Output, late.Attached = storagetest.Key(1, 3), "nonce-3", nil, nil, nil
	var cases []methodCase
	for _, e := range entries() {
		cases = append(cases, on("Writer.Append", e, turnlog.Consequence{}))
	}
	outcome := golden.Filled[turnlog.Outcome](700)
	outcome.State, outcome.StopReason, outcome.Silent = turnkeeper.TurnFailed, turnkeeper.StopInferenceError, false
	return append(append([]methodCase{
		on("journal.Store.Claim", turnlog.CallRef{TurnID: 204, Key: storagetest.Key(1, 2), Attempt: 1}, "w4",
			[]string{"long"}),
		on("journal.Store.Claim", turnlog.CallRef{TurnID: 204, Key: storagetest.Key(1, 2), Attempt: 7}, "w4",
			[]string{"long"}),
		on("journal.Store.Arrive", claimed, result), on("journal.Store.Release", other),
		on("journal.Store.NoteRetrieved", 201, "out-201"),
		on("journal.Store.KeepExtraction", 201, golden.Filled[turnlog.ExtractionKey](20), []byte(`{"found":9}`)),
		on("journal.Store.FindExtraction", golden.Filled[turnlog.ExtractionKey](20)),
		on("journal.Store.ForgetExtractions"),
		on("journal.Store.WriteNote", turnkeeper.ConversationKey{Agent: "desk", User: "ann"}, "name", "text",
			[]policy.Mark{{Label: policy.Untrusted, Source: "a page"}, {Label: policy.Private, Source: "a diary"}}),
		on("Writer.WriteDraft", turnlog.OutputPart{Output: "draft-1", FirstChar: 7, FirstByte: 8, Text: "more"}),
		on("Writer.WriteDraft", turnlog.OutputPart{Output: "draft-1", FirstByte: 9, Bytes: []byte("raw")}),
		on("Writer.DropDraft", "draft-1"), on("journal.Store.SweepDrafts"),
	}, cases...), on("Writer.Late", late), on("Writer.Append", turnlog.Entry{Outcome: &outcome,
		Answered: []string{"p/a"},
		Probed:   []string{"p/q"},
		Refused:  []string{"p/r"}, Events: storagetest.Events(turnkeeper.EventTurnError)},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: 9 * time.Minute}))
}

// entries returns entries of turn 201, one after the other, that fill all fields but the outcome.
func entries() []turnlog.Entry {
	failed := []turnlog.FailedAttempt{golden.Filled[turnlog.FailedAttempt](300),
		golden.Filled[turnlog.FailedAttempt](330)}
	failed[0].Latency, failed[1].Latency = 1301*time.Millisecond, 1302*time.Millisecond
	question := golden.Filled[asks.Question](360)
	question.Call, question.Kind, question.Schema = storagetest.Key(1, 2), asks.KindApprove, `{"type":"object"}`
	input := question
	input.Call, input.Kind, question.Resume = storagetest.Key(1, 3), asks.KindInput, ""
	round := golden.Filled[turnkeeper.Round](400)
	round.Number, round.Latency, round.Raw, round.Recipe = 2, 1401*time.Millisecond, []byte(`{"raw":2}`),
		&turnkeeper.Recipe{Version: 1, Provider: "p", Model: "q", Epoch: golden.Filled[turnkeeper.EpochID](460)}
	round.Calls = append(round.Calls, round.Calls...)
	for i := range round.Calls {
		c := &round.Calls[i]
		c.Key, c.State, c.Paging, c.Starts, c.Nonce = storagetest.Key(2, i+1), turnkeeper.CallPlanned, i == 2, 0, ""
		c.Effect, c.Shown, c.Preview, c.Name = turnkeeper.EffectOnce, "", "", fmt.Sprint("tool", i)
		c.Arguments, c.ArgsHash = fmt.Sprintf(`{"n":%d}`, i), fmt.Sprint("hash ", i)
	}
	spawn := golden.Filled[turnlog.Spawn](500)
	spawn.Message, spawn.Agent, spawn.Root, spawn.Agents = 180, "scout", 201, []string{"clerk", "scout"}
	starts := []turnlog.CallStart{
		storagetest.Start(storagetest.Key(2, 1), "nonce-21", 1, turnkeeper.EffectOnce),
		storagetest.Start(storagetest.Key(2, 2), "nonce-22", 1, turnkeeper.EffectOnce),
		storagetest.Start(storagetest.Key(2, 3), "nonce-23", 1, turnkeeper.EffectOnce),
	}
	starts[0].Detached, starts[1].Spawn = 3*time.Minute, &spawn
	starts[2].RunArgs, starts[2].ArgsHash = `{"n":20}`, "hash 20"
	stored := golden.Filled[turnlog.CallResult](550)
	stored.Key, stored.Nonce, stored.State, stored.Spawned = storagetest.Key(2, 3), "nonce-23",
		turnkeeper.CallSucceeded, nil
	stored.Duration, stored.Output.Bytes, stored.Output.Drafted = 1501*time.Millisecond, nil, false
	stored.Attached = stored.Attached[:1]
	stored.Attached[0].Text, stored.Attached[0].Drafted = "", false
	stored.Labels = []policy.Mark{{Label: policy.Private, Source: "a letter"}}
	free := golden.Filled[turnlog.CallResult](650)
	free.Key, free.Nonce, free.State, free.Spawned, free.Output, free.Attached = storagetest.Key(1, 2), "",
		turnkeeper.CallFailed, nil, nil, nil
	free.Labels, spawn.Labels = nil, stored.Labels
	return []turnlog.Entry{
		{
			Failed: failed, Labels: []policy.Mark{{Label: policy.Private, Source: "a diary"}},
			Gates: []turnkeeper.CallKey{storagetest.Key(1, 2)}, Asks: []asks.Question{question, input},
			Seen:   []asks.ID{304},
			Inputs: []asks.ID{306}, Withdrawn: []turnkeeper.CallKey{storagetest.Key(1, 3)},
			Events: []turnkeeper.Event{golden.Filled[turnkeeper.Event](20), golden.Filled[turnkeeper.Event](40)},
		},
		{
			Answered: []string{"p/a"}, Probed: []string{"p/q"}, Refused: []string{"p/r"},
			ModelFailures: []modelhealth.Failure{golden.Filled[modelhealth.Failure](60),
				golden.Filled[modelhealth.Failure](80)},
		},
		{
			Round: &round, Parts: []turnlog.RequestPart{turnlog.NewRequestPart("b part"),
				turnlog.NewRequestPart("a part")},
			Summary: &turnlog.Summary{UpTo: 32, Text: "so far", Labels: []policy.Mark{{Label: policy.Untrusted,
				Source: "a page"}}},
		},
		{Starts: starts, Answered: []string{"p/a"}},
		{Results: []turnlog.CallResult{stored, free}},
		{Results: []turnlog.CallResult{{Key: storagetest.Key(2, 1), State: turnkeeper.CallRunning, Shown: "it runs",
			Preview: "runs", OutputID: "out-21"}}},
		{Results: []turnlog.CallResult{{Key: storagetest.Key(2, 1), State: turnkeeper.CallFailed, Shown: "it failed",
			Nonce: "nonce-21"}}},
		{Verdicts: []turnlog.CallResult{{Key: storagetest.Key(1, 3), State: turnkeeper.CallUnknown, Shown: "unknown"}}},
	}
}
