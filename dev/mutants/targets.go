package main

// plans matches tests of query plans. Forcing a condition changes the plan, but the plan is not what
// the condition guards.
const plans = "^TestLooksAtALongQueueUseIndexes$"

// The tests of the stores: two packages over the same SQL.
var stores = append([]string{"./jobs"}, storages...)

// The packages that test statements and functions of the schema.
var storages = []string{"./storage", "./storage/journal", "./storage/grants", "./storage/operate",
	"./storage/internal/pg"}

var targets = []Target{
	// The journal in Postgres.
	{
		Name:      "fence",
		Queries:   []string{"BindGrant", "ReadBack", "HasStart"},
		Functions: []string{"append_many"},
		First:     "^(TestEachConditionOfTheFence|TestBindGrantChecks|TestTheSecondBinding|TestTurnsThatShare|TestLateAttachments|TestATurnOfABatch|TestWritesOfMany|TestTwoWriters|TestEndsOfABatch|TestAFencedWrite|TestStarts|TestAFullTurn|TestAStartWithoutItsApproval|TestLostAnswerOfAStep|TestSuite)",
		Tests:     stores, Skip: plans,
	},
	{
		Name: "calls",
		Go: []Code{{"storage/journal/calls.go", []string{"callStates.call", "callStates.with",
			"callStates.answer"}}},
		Queries:   []string{"RecentCalls"},
		Functions: []string{"late_result", "settle_calls", "call_holds"},
		First:     "^(TestRowRules|TestALateResult|TestWhoseLateResult|TestWhichLateResult|TestATurnWithoutOpenCalls|TestRecentCalls|TestStartsAndAnswers|TestACallInTheBackground|TestWhatACancelledTurn|TestWhatALostTurn|TestWhatATurnLeaves|TestALostParent|TestCloseOf|TestNothingHappens|Test.*Moves|TestEntriesAbout)",
		Tests:     stores, Skip: plans,
	},
	{
		Name: "end",
		Functions: []string{"end_many", "check_turn_move", "lease_goes", "turn_holds", "lease_holds",
			"message_holds"},
		First: "^(TestRowRules|TestExtremesOfMessages|TestTablesKeep|TestNothingHappens|Test.*Move|TestOutcomes|TestWhetherATurnWaits|TestACancellation|" +
			"TestAnEndOfAnother|TestWhoIsToldOfAnEnd|TestEndsOfABatch|TestSuite)",
		Tests: stores, Skip: plans,
	},
	{
		Name: "grant",
		Queries: []string{"Snapshot", "Grant", "TakenGrants", "ReadyTurns", "ReadyMessages", "LostGrants", "Losses",
			"CloseJobs", "GiveBackJobs", "GiveUpGrants"},
		Functions: []string{"lease_over", "heartbeat_overdue", "lane_pauses", "backs_off", "rank_from_now",
			"pause_ends", "oldest_waiting", "waits_behind",
			"check_granted", "worker_gone", "owner_gone",
			"worker_present", "lane_waits", "forget_lanes", "forget_unused", "move_lanes",
			"move_lanes_of", "park_old"},
		First: "^(Test.*Lost|TestRoomIs|TestHeartbeats|TestUnclaimed|TestReadyMessages|TestWhatPartial|TestNothingIsOvertaken|TestAMessageOfALong|TestAMessageBehind|TestLanesThatBack|TestAPauseThat|TestALaneThatFailed|TestDeferred|TestFailedLane|TestWhich|TestATurnForANewer|TestAGrant|TestWhatAWorker|TestTimeRules|TestJobsThatAreOver|TestLosses|TestNothingHappens)",
		Tests: stores, Skip: plans,
	},
	{
		Name: "aside",
		Go: []Code{{"scheduler/apart.go", []string{"Scheduler.step", "Scheduler.each", "Scheduler.dispatch"}},
			{"storage/grants/tick.go", []string{"Tick.Try", "Tick.notAside"}},
			{"storage/agents.go", []string{"DB.RegisterEach", "DB.notAside"}}},
		Queries: []string{"AgentsToTry"},
		Functions: []string{"belongs_to_row", "put_aside", "put_aside_or_raise", "forget_aside", "settle_spawned",
			"claim_deliveries", "purge"},
		First: "^(TestSuite|TestARowThatCannot|TestEachAgent|TestOneRowFails|TestAFullDisk|TestAPurgeGoesOn|TestClaimsWithout)",
		Tests: append([]string{"./scheduler"}, stores...), Skip: plans,
	},
	{
		Name: "retention",
		Go: []Code{{File: "internal/retention/retention.go"}, {File: "internal/memory/retention.go"},
			{File: "internal/words/expired.go"},
			{File: "storage/operate/retention.go"}, {File: "internal/diagnosis/retention.go"}},
		Queries: []string{"StoredParts", "ForgetPins", "ReadOutput"},
		Functions: []string{"expirable", "purge_is_aside", "expire_outputs", "expire_events", "expire_leases",
			"expire_turns", "expire", "first_message", "forget_unused"},
		First: "^(TestSuite|TestEachClass|TestWhatExpires|TestExpiryGoes|TestRetention|TestHowLong|TestWhatRetention|TestExpired|TestWhenRetention|TestTurnPage)",
		Tests: append([]string{"./internal/cli/turnctl", "./internal/memory", "./internal/retention"},
			stores...), Skip: plans,
	},
	{
		Name: "doorbell",
		Go: []Code{{"jobs/doorbell.go", []string{"doorbells.Listen", "doorbells.WaitForNotification",
			"doorbells.hear", "doorbells.next"}}},
		First: "^(TestAFloodOfDoorbells|TestABrokenConnectionOfDoorbells|TestSendersCannotCommandRiver|TestAGrantToAnotherProcess)",
		Tests: []string{"./jobs"},
	},
	{
		Name: "claims",
		Queries: []string{"ClaimCall", "CallIsOpen", "ClaimsHeld", "ClaimDelivered", "Arrivals", "GiveUpClaims",
			"GiveBackCallJobs",
			"LostCalls", "LookAgainAtCalls"},
		Functions: []string{"run_overdue", "fetch_overlooked", "arrive_call", "end_detached",
			"run_detached_again", "stop_awaiting", "calls_lost"},
		First: "^(TestNothingHappens|TestWhoMayClaim|TestWhichC|TestArrival|TestWhatAnArrival|TestAnArrival|TestWhatAWorker|TestTimeRules|TestWhatHasArrived|" +
			"TestWhoIsToldOfACall|TestACallIsMoved|TestJobsOfCalls|TestWhatATurnLeaves|TestALook|TestHowSubAgents|TestWhatMayBeGiven)",
		Tests: stores, Skip: plans,
	},
	{
		Name: "asks",
		Functions: []string{"open_asks", "see_asks", "use_inputs", "wake_turn", "check_approvals", "answer_ask",
			"expire_asks", "withdraw_asks", "may_wait", "park_turn", "unpark_turn",
			"parked_turn_blocks", "move_held", "held_lane"},
		First: "^(TestSuite|TestManyAsks|TestAnswersBySQL|TestAnAnswerWaits|TestWhetherATurnWaits|TestWhichTurnsAreParked|TestWhatAParkedTurnHolds)",
		Tests: stores, Skip: plans,
	},
	{
		Name:    "labels",
		Queries: []string{"LabelsForTurn", "LabelsOfReplies", "LockFile", "FileLabels"},
		Functions: []string{"label_reply", "label_retry", "label_message", "forget_labels", "write_note", "label_file",
			"relabel_file"},
		First: "^(TestSuite|TestWhatATurnReadsOfLabels|TestAPurgeDeletesLabels|TestAMessageThatIsSentAgain|TestWhoseLabels|TestLabelsOf|TestWritersOf)",
		Tests: append([]string{"./httpapi"}, stores...), Skip: plans,
	},
	{
		Name: "flows",
		Go: []Code{
			{File: "policy/labels.go"}, {File: "policy/destinations.go"}, {File: "agentturn/replysink.go"},
			{"tools/builtin/files.go", []string{"files.labelled"}}, {"tools/builtin/writefile.go",
				[]string{"files.writeLabelled", "mustBeWritable"}},
			{File: "agentturn/labels.go"}, {File: "agentturn/calls/labels.go"}, {File: "internal/turnlog/labels.go"},
			{File: "internal/memory/labels.go"},
		},
		Tests: []string{"./policy", "./agentturn", "./internal/memory", "./tools/builtin"},
	},
	{
		Name: "durability",
		Go: []Code{
			{File: "agentturn/durability.go"}, {"agentturn/reads.go", []string{"executor.runReads"}},
			{"agentturn/execution.go", []string{"execution.ask"}},
			{File: "agentturn/early.go"}, {File: "agentturn/kept.go"},
		},
		Tests: []string{"./agentturn"},
	},
	{
		Name: "approvals",
		Go: []Code{
			{"agentturn/asks.go", []string{"extensions", "turnState.withdraw", "execution.putAll",
				"execution.askToGoOn"}},
			{File: "agentturn/rules.go"}, {File: "agentturn/calls/next.go"}, {File: "agentturn/calls/asks.go"},
			{"agentturn/calls/call.go", []string{"Call.Start"}}, {File: "agentturn/questions.go"},
			{"internal/turnlog/entry.go", []string{"Record.Allowed", "Record.open"}},
			{File: "policy/policy.go"}, {"asks/asks.go", []string{"Kind.Takes", "Kind.Decides", "Ask.Allows",
				"Ask.RunHash"}},
		},
		First: "^(TestACallWaitsForItsApproval|TestACallThatIsNotApproved|TestAPersonChanges|TestEveryKindOfCall|TestAChangedCall|" +
			"TestCallsOfOneAnswer|TestAToolDecides|TestRulesOf|TestAKillAfterTheApproval|TestAModelAsks|TestAPersonSettles|TestAPersonLets|TestRulesSee|TestReadsBeside|TestAGateStays|TestWhichCalls|TestOtherArguments|TestAnApprovedCall|TestWhatIsAsked|TestWhatHasChanged|TestWhatMayChange|TestAKillBetween|TestApprovedCalls|TestACallThatDidNot|TestWaysPast|TestQuestionsO|TestASettledCall|TestAsksOf)",
		Tests: []string{"./asks", "./internal/turnlog", "./policy", "./internal/memory", "./agentturn",
			"./agentturn/calls"},
	},
	{
		Name: "blockers",
		Go:   []Code{{File: "internal/memory/blockers.go"}},
		Functions: []string{"blockers", "standstill", "models_awaited", "turn_waits", "turn_holder", "given_up",
			"other_worker", "live_workers", "lane_rivals"},
		First: "^(TestBlockers|TestWhatAMessageWaitsFor|TestAnAnsweredTurn|TestAMessageBehindAnOldLane|TestATurnForANewerWorker)",
		Tests: append([]string{"./internal/memory", "./internal/cli"}, stores...), Skip: plans,
	},
	{
		Name:    "cancel",
		Queries: []string{"EndsRequested", "RequestedEndOf", "OpenSubAgents"},
		Functions: []string{
			"close_cancelled", "cancelled_reply", "cancel_waiting", "ask_end", "settle_end", "requested_end",
			"waits_in_vain", "hurry_turn", "cancel_message", "retry_message",
		},
		First: "^(TestSuite|TestNothingHappens|TestACancel|TestWhatACancelledTurn|TestWhatATurnLeaves|TestWhichGrantsAreCancelled|TestRetries)",
		Tests: append([]string{"./httpapi"}, stores...), Skip: plans,
	},
	{
		Name: "finish",
		Go: []Code{
			{File: "agentturn/finish.go"}, {File: "agentturn/cancelled.go"}, {File: "internal/memory/finish.go"},
			{File: "storage/operate/finish.go"},
		},
		First: "^(TestATurnFinishes|TestATurnFinishesAtOnce|TestARunningModelCall|TestAParkedTurnFinishes|TestATurnThat|TestDetachedCallsOf|TestATurnWithoutRounds|TestACancelledReply|TestSuite)",
		Tests: []string{"./agentturn", "./internal/memory", "./jobs"},
	},
	{
		Name:    "inbox",
		Queries: []string{"WrittenHere", "DueSchedules", "Fire", "AdvanceSchedule", "NextDue"},
		Functions: []string{"enqueue_by", "enqueue_message", "lock_own_message", "edit_message", "being_changed",
			"settled_replies", "replies_after", "my_replies_after"},
		First: "^(TestSuite|TestARoleWith|TestWhatASender|TestASendersOpen|TestWhatIsWaited|TestWhatWasDue|TestEnqueue|TestAccept|TestUnknownAgent|Test.*Schedule|TestSlots|TestWhatASlot|TestARetired|TestWhichRowsAre|TestReplies|TestAReply|TestWhoIsNotAWriter|TestAUserIn|TestNamesOfUsers|TestAnEdited|TestWhichTransactions|TestWhoseReplies|TestASenderMisses)",
		Tests: stores, Skip: plans,
	},
	{
		Name: "histories",
		Go: []Code{
			{File: "httpapi/responses/history.go"}, {File: "httpapi/responses/input.go"},
			{File: "httpapi/responses/drafts.go"},
			{File: "httpapi/responses/conversations.go"}, {"httpapi/responses/api.go", []string{"API.accept",
				"API.checkSize"}},
		},
		Queries:   []string{"ResponsesWithHistory", "NewestMessage", "ResponseTexts", "ConversationByID"},
		Functions: []string{"enqueue_response", "repeated_response", "create_conversation", "use_conversation"},
		First: "^(TestOpenResponses|TestAFullHistory|TestAHistoryThat|TestTokensDoNot|TestTwoClients|TestReferences|TestAMessageAfter|TestARepeat|" +
			"TestConversations|TestUnusedConversations|TestAConversationOf|TestDrafts|TestRefusedResponses)",
		Tests: []string{"./httpapi"},
	},
	{
		Name: "levels",
		Go: []Code{{"internal/survival/survival.go", []string{"Next", "Worse", "Rules.Waits", "Day.Left"}},
			{"agentturn/models.go", []string{"roster.noteLevel"}}},
		Functions: []string{"next_level", "note_level", "pin_of", "level_of", "waits_below", "move_levels",
			"failing_from"},
		First: "^(TestTheRuleOfLevels|TestLevelsFollow|TestALevel|TestPinsGoFirst|TestNext|TestDay|TestRules|TestSuite|TestBlockers)",
		Tests: append([]string{"./internal/survival", "./agentturn"}, stores...), Skip: plans,
	},
	{
		Name:      "spend",
		Queries:   []string{"ReserveSpend", "ReserveTreeSpend"},
		Functions: []string{"reserve_spend", "settle_spend", "reserve_tree_spend", "settle_tree_spend"},
		First:     "^Test.*Spend",
		Tests:     stores, Skip: plans,
	},
	{
		Name:    "spawn",
		Queries: []string{"HangSpawned", "SpawnedBy"},
		Functions: []string{"spawn_agents", "notify_parent", "note_spawned_reply", "settle_spawned",
			"forget_spawned"},
		First: "^(TestNothingHappens|TestWhatMayBeGiven|TestHowSubAgents|TestAParent|TestASubAgent|TestAReplyThatNobody|TestACallThatDrops|TestSubAgents|" +
			"TestALostParent|TestFamilies)",
		Tests: stores, Skip: plans,
	},
	{
		Name: "writer",
		Go: []Code{
			{File: "storage/journal/commit_retry.go"}, {File: "storage/journal/writer.go"},
			{File: "storage/internal/pg/tx.go"},
			{"storage/journal/transact.go", []string{"Writer.Transact", "Writer.inTx", "runInSavepoint", "undone",
				"checkDeferred"}},
			{"storage/internal/pg/errors.go", []string{"conditionError.Is", "Translate", "Unanswered", "isBroken",
				"Uncertain", "KeyTaken", "LockRefused"}},
			{"storage/internal/pg/pipeline.go", []string{"Pipeline.Send", "committed"}},
			{"jobs/worker.go", []string{"Worker.enter", "Worker.Work", "Worker.dispatch", "Worker.before"}},
			{File: "jobs/handback.go"}, {File: "jobs/journal.go"},
			{"jobs/calls.go", []string{"CallWorker.Work", "CallWorker.leave", "CallWorker.enter", "CallWorker.begin"}},
		},
		Tests: stores, Skip: plans,
	},

	// The journal in memory, and what both share.
	{
		Name: "commit",
		Go:   []Code{{File: "internal/commit/commit.go"}, {File: "internal/commit/patience.go"}},
		Tests: append([]string{"./internal/commit", "./internal/memory", "./internal/simulation"},
			storages...), Skip: plans,
	},
	{
		Name: "memory",
		Go: []Code{
			{File: "internal/memory/commit_retry.go"}, {File: "internal/memory/journal.go"},
			{File: "internal/memory/entry.go"},
			{File: "internal/memory/end.go"}, {File: "internal/memory/grant.go"}, {File: "internal/memory/tick.go"},
			{File: "internal/memory/detached.go"}, {File: "internal/memory/cancel.go"},
			{File: "internal/memory/asks.go"},
		},
		Tests: []string{"./internal/memory", "./internal/simulation", "./turnkeepertest"},
	},
	{
		Name:  "losses",
		Go:    []Code{{File: "internal/granting/loss.go"}},
		Tests: []string{"./internal/granting"},
	},
	{
		Name:  "lease",
		Go:    []Code{{File: "lease/lease.go"}, {File: "lease/heart.go"}},
		Tests: []string{"./lease"},
	},

	// Who may do what.
	{
		Name: "tokens",
		Go: []Code{{File: "httpapi/admission.go"}, {File: "httpapi/page/session.go"}, {File: "httpapi/limits.go"},
			{File: "httpapi/connections.go"}, {File: "storage/operate/tokens.go"}},
		Queries: []string{"TokenByHash", "NoteTokenUse", "AnyToken", "RevokeToken", "CreateSession", "TokenOfSession",
			"EndSession"},
		Tests: append([]string{"./httpapi", "./httpapi/page"}, storages...),
	},
	{
		Name: "routes",
		Go: []Code{
			{File: "httpapi/turns.go"}, {File: "httpapi/messages.go"}, {File: "httpapi/schedules.go"},
			{File: "httpapi/lanes.go"},
			{File: "httpapi/internal/access/access.go"}, {File: "httpapi/internal/access/screen.go"},
			{File: "httpapi/internal/access/agents.go"}, {File: "httpapi/internal/access/levels.go"},
			{File: "httpapi/internal/access/webhooks.go"}, {"storage/operate/levels.go", []string{"Levels.For"}},
			{File: "httpapi/internal/request/parameters.go"}, {File: "httpapi/internal/request/body.go"},
			{File: "httpapi/handler.go"}, {File: "httpapi/responses.go"}, {File: "httpapi/webhooks.go"},
			{"httpapi/events.go", []string{"events.get", "wantsStream", "afterOf", "events.list", "events.isPurged",
				"events.position", "events.eventAt"}},
		},
		Queries: []string{"ListTurns", "ListMessages", "ListRepliesNewestFirst", "ListLanes", "OutputByID",
			"ReadOutput", "DescribeOutput"},
		Functions: []string{"events_after"},
		Tests:     append([]string{"./httpapi", "./httpapi/internal/request"}, storages...), Skip: plans,
	},
	{
		Name: "watch",
		Go: []Code{
			{File: "stream/message.go"}, {File: "stream/board.go"}, {"internal/views/event.go",
				[]string{"ForSender", "SentFields"}},
			{"httpapi/messageevents.go", []string{"events.ofMessage", "cursorOf", "events.checkTurn",
				"events.writeMessage", "events.visible"}},
			{"agentturn/turnevents/stream.go", []string{"Stream.data"}}, {File: "client/watch.go"},
		},
		Queries: []string{"WatchedMessages"},
		First: "^(TestAMessage|TestWatchersOfAMessage|TestTheEndOfWatching|TestReasonsThatAreOver|TestATurnWithoutItsLast|FuzzCursors|TestWhatSendersAreShown|TestPositionsOf|TestAPurgedMessage|TestReasonsToWait|" +
			"TestOneReadForAll|TestEachKindOfText|TestWatch)",
		Tests: []string{"./stream", "./httpapi", "./agentturn/turnevents", "./client"},
	},
	{
		Name: "owners",
		Go: []Code{
			{File: "conversation.go"}, {"httpapi/internal/request/request.go", []string{"Caller.User",
				"Caller.SeesWords"}},
			{"httpapi/internal/request/parameters.go", []string{"Call.user", "Call.Sender"}},
			{"httpapi/internal/access/access.go", []string{"Access.CheckTurn"}},
			{File: "httpapi/internal/access/screen.go"},
			{"httpapi/responses/api.go", []string{"Caller.sees", "API.Create", "API.find"}}, {"httpapi/admission.go",
				[]string{"admission.admitToken"}},
			{"tools/builtin/notes.go", []string{"ownerOf"}}, {"storage/operate/purge.go", []string{"PurgeScope.user",
				"Control.purgeNotes"}},
			{"storage/operate/find.go", []string{"Views.prepare"}},
		},
		Queries: []string{"PastTurns", "CountPastTurns", "LastRun", "SummaryUpTo", "ReadNote", "ListNotes",
			"PurgeNotes", "CountNotes", "FindMessages", "FindTurns",
			"ListAsks", "ListOpenAsks", "ListAsksOfTurn"},
		Functions: []string{"lane_of", "user_may_be", "has_past", "lane_rivals", "conversation_held", "held_lane",
			"forget_lanes", "write_note"},
		First: "^(TestSuite|TestATokenOfAUser|TestListsOfOneUser|TestAResponseContinues|TestWaitsHide|TestThePageIsNot|TestThePageShowsWhose|TestAClientLeaves|TestWhoseNotes|TestLanesOf|TestNamesOf|" +
			"TestAUserIn|TestAPurge|TestWhichNotes|TestWhoseLabels|TestWhichLanes|TestWhatAParked|TestWhichMessagesWait|TestSearchesShow|TestListsOfAsks|TestFinding|" +
			"TestTranscripts|TestASearch|TestACommonWord|TestAResponse|TestRefusedResponses|TestWaitingForAResponse|TestTheEventsOfAResponse|TestOpenResponses|TestStreamsOfAToken|TestWhoFinds|TestTokens$)",
		Tests: append([]string{"./httpapi", "./tools/builtin", "./internal/memory"}, stores...), Skip: plans,
	},
	{
		Name:      "answering",
		Go:        []Code{{File: "httpapi/internal/access/asks.go"}, {File: "httpapi/asks.go"}},
		Functions: []string{"push_ask", "drop_closed_asks"},
		First:     "^(TestTheStoreFails|TestAsksAre|TestQuestionsAre|TestWhoMayAnswer|TestFourEyes|TestSenders|TestAsksOnThePage|TestFormsOfQuestions|TestDeliveriesOfAsks)",
		Tests:     []string{"./httpapi", "./storage/operate"},
	},
	{
		Name: "netguard",
		Go: []Code{{File: "internal/netguard/addresses.go"}, {File: "internal/netguard/dial.go"},
			{File: "internal/netguard/listeners.go"}},
		Tests: []string{"./internal/netguard", "./tools/builtin"},
	},

	{
		Name: "sessions",
		Go: []Code{
			{"tools/mcp/session.go", []string{"session.doubt", "session.fit", "session.usable"}},
			{"tools/mcp/client.go", []string{"host.acquire", "host.followList", "host.readList"}},
		},
		First: "^(TestASessionThatIsForgotten|TestAFailedCall|TestAServerThatReports|TestTheListChanges|TestAListThatNever)",
		Tests: []string{"./tools/mcp"},
	},

	// What a model and its tools say.
	{
		Name: "arguments",
		Go: []Code{
			{File: "internal/arguments/value.go"}, {File: "internal/arguments/check.go"},
			{File: "internal/arguments/parse.go"},
			{File: "internal/arguments/number.go"}, {File: "internal/arguments/canonical.go"},
			{File: "internal/arguments/coerce.go"},
			{File: "internal/arguments/schema.go"}, {File: "tools/arguments.go"}, {File: "tools/registry.go"},
		},
		Tests: []string{"./internal/arguments", "./tools", "./policy/cel"},
	},
	{
		Name: "pieces",
		Go: []Code{
			{File: "inference/openai/completions/pieces.go"}, {File: "inference/openai/completions/elsewhere.go"},
			{File: "inference/openai/completions/plain.go"}, {File: "inference/finish.go"},
			{"agentturn/planner.go", []string{"doubtAbout", "planner.verdict"}},
		},
		Tests: []string{"./inference/openai", "./agentturn"},
	},
	{
		Name: "speech",
		Go: []Code{{File: "inference/speech.go"}, {File: "inference/markup.go"},
			{File: "inference/openai/completions/normalize.go"}},
		Tests: []string{"./inference", "./inference/openai"},
	},
	{
		Name:  "rules",
		Go:    []Code{{File: "policy/cel/cel.go"}, {File: "policy/cel/numbers.go"}},
		Tests: []string{"./policy/cel"},
	},
	{
		Name: "as_run",
		Go: []Code{
			{"agentturn/calls/call.go", []string{"Call.AsRun", "Call.Approved"}}, {"agentturn/calls/repeat.go",
				[]string{"Call.Repeated"}},
			{"agentturn/calls/notes.go", []string{"Call.Unknown"}},
			{"internal/turnlog/entry.go", []string{"CallStart.SetArguments"}},
			{"toolcall.go", []string{"ToolCall.AsRun"}},
		},
		Tests: []string{"./internal/turnlog", "./agentturn", "./agentturn/calls", "./internal/memory"},
	},
	{
		Name: "schemas",
		Go: []Code{{File: "internal/arguments/exact.go"}, {File: "internal/arguments/schemarefs.go"},
			{File: "internal/arguments/schemarelax.go"}},
		Tests: []string{"./internal/arguments", "./tools"},
	},
	{
		Name: "provenance",
		Go: []Code{
			{File: "outputs/provenance.go"}, {File: "outputs/chunks.go"}, {File: "outputs/page.go"},
			{File: "outputs/slice.go"},
			{File: "outputs/handle.go"}, {File: "outputs/clean.go"}, {File: "outputs/continuation.go"},
			{"outputs/extraction.go", []string{"Extraction.Verify", "Extraction.Render", "fits",
				"Extraction.shortened"}},
		},
		Tests: []string{"./outputs"},
	},

	// When.
	{
		Name: "schedule",
		Go: []Code{
			{File: "scheduler/slots.go"}, {File: "scheduler/order.go"}, {File: "scheduler/trust.go"},
			{File: "scheduler/calls.go"},
			{File: "agentdef/schedule.go"},
		},
		Tests: []string{"./scheduler", "./agentdef"},
	},
	{
		Name: "order",
		Go: []Code{{File: "scheduler/shares.go"}, {File: "scheduler/order.go"}, {File: "scheduler/health.go"},
			{"scheduler/tick.go", []string{"Scheduler.pick"}}},
		Tests: []string{"./scheduler", "./internal/memory"},
	},
	{
		Name: "tick",
		Go: []Code{{"scheduler/tick.go", []string{"Scheduler.pass", "Scheduler.reclaim", "Scheduler.spawned",
			"Scheduler.slots", "Scheduler.grant"}}},
		Tests: []string{"./scheduler"},
	},
}
