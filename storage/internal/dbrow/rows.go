// Package dbrow converts rows of the database to types of package turnkeeper.
package dbrow

import (
	"encoding/json"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
)

// OrNullTime returns nil for the zero time.
func OrNullTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// OrEmpty returns an empty list for nil.
func OrEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// DownModel converts a row.
func DownModel(r dbsqlc.DownModelsRow) modelhealth.Health {
	return modelhealth.Health{
		Model: r.Model, DownSince: r.DownSince, Until: r.Until, Failures: int(r.Failures), ErrorClass: r.ErrorClass,
		Error: r.Error,
		Probe: turnkeeper.GrantID(r.Probe), ProbeTurn: turnkeeper.TurnID(r.ProbeTurn), Due: r.Due,
		Failed: Map(r.FailedLanes, func(lane string) turnkeeper.Lane { return turnkeeper.Lane(lane) }),
	}
}

// Suspect returns a model that has failed a message.
func Suspect(r dbsqlc.SuspectedRow) modelhealth.Suspect {
	return modelhealth.Suspect{
		Model: r.Model, Failures: int(r.Failures), Requests: int(r.Requests), Open: r.Open, Pairs: int(r.Pairs),
		Span: Micros(r.SpanUs),
	}
}

// OrNullNumber returns nil for 0.
func OrNullNumber(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Map converts rows.
func Map[R, T any](rows []R, convert func(R) T) []T {
	converted := make([]T, len(rows))
	for i, row := range rows {
		converted[i] = convert(row)
	}
	return converted
}

// OrNull returns nil for an empty text.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// OrZero returns *p, or the zero value if p is nil.
func OrZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Micros returns a duration of microseconds.
func Micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Message converts a row.
func Message(r dbsqlc.TurnkeeperMessage) turnkeeper.Message {
	return turnkeeper.Message{
		ID: turnkeeper.MessageID(r.ID), Agent: r.Agent, User: r.UserName, Conversation: r.Conversation,
		Lane: turnkeeper.Lane(r.Lane),
		Body: r.Body, Key: OrZero(r.IdempotencyKey), Priority: int(r.Priority), Trigger: turnkeeper.Trigger(r.Trigger),
		Schedule: OrZero(r.Schedule), Slot: OrZero(r.Slot), State: turnkeeper.MessageState(r.State),
		Attempts: int(r.Attempts),
		DueAt:    r.DueAt, AcceptedAt: r.AcceptedAt, ClosedAt: OrZero(r.ClosedAt),
		TurnID:    turnkeeper.TurnID(OrZero(r.TurnID)),
		LastError: OrZero(r.LastError), Faults: int(r.Faults), TraceParent: OrZero(r.TraceParent), SentBy: r.SentBy,
	}
}

// Reply converts a row.
func Reply(r dbsqlc.TurnkeeperReply) turnkeeper.Reply {
	return turnkeeper.Reply{
		ID: turnkeeper.ReplyID(r.ID), MessageID: turnkeeper.MessageID(r.MessageID), TurnID: turnkeeper.TurnID(r.TurnID),
		Agent: r.Agent, User: r.UserName, Conversation: r.Conversation, Outcome: turnkeeper.TurnState(r.Outcome),
		Body: r.Body, CreatedAt: r.CreatedAt,
		StopReason: turnkeeper.StopReason(r.StopReason), ErrorClass: OrZero(r.ErrorClass), Calls: ReplyCalls(r.Calls),
		Labels: r.Labels, ParentTurn: turnkeeper.TurnID(OrZero(r.ParentTurnID)),
	}
}

// A storedCall is an entry of the result of the function turnkeeper.reply_calls.
type storedCall struct {
	Ordinal  int                  `json:"ordinal"`
	ID       string               `json:"id"`
	Name     string               `json:"name"`
	Effect   turnkeeper.Effect    `json:"effect"`
	State    turnkeeper.CallState `json:"state"`
	Duration *int64               `json:"duration_ms"`
	Error    string               `json:"error"`
}

// StoredReplyCalls returns the calls of rounds as the function turnkeeper.reply_calls does.
func StoredReplyCalls(rounds []turnkeeper.Round) string {
	rows := Map(turnlog.ReplyCalls(rounds), func(c turnkeeper.ReplyCall) storedCall {
		r := storedCall{c.Ordinal, c.Key.String(), c.Name, c.Effect, c.State, nil, c.Problem}
		if c.Duration >= 0 {
			took := c.Duration.Milliseconds()
			r.Duration = &took
		}
		return r
	})
	stored, err := json.Marshal(rows)
	if err != nil {
		panic(err) // texts and numbers
	}
	return string(stored)
}

// ReplyCalls decodes the result of the function turnkeeper.reply_calls.
func ReplyCalls(stored []byte) []turnkeeper.ReplyCall {
	var rows []storedCall
	if err := json.Unmarshal(stored, &rows); err != nil {
		return nil // there is no reply
	}
	return Map(rows, func(r storedCall) turnkeeper.ReplyCall {
		call := turnkeeper.ReplyCall{Ordinal: r.Ordinal, Name: r.Name, Effect: r.Effect, State: r.State, Duration: -1,
			Problem: r.Error}
		_, _ = fmt.Sscanf(r.ID, "round-%d-tool-%d", &call.Key.Round, &call.Key.Ordinal)
		if r.Duration != nil {
			call.Duration = time.Duration(*r.Duration) * time.Millisecond
		}
		return call
	})
}

// TurnForWorker converts a turn that a worker reads.
func TurnForWorker(r *dbsqlc.TurnForWorkerRow) turnkeeper.Turn {
	return Turn(dbsqlc.TurnkeeperTurnsNow{
		ID: r.ID, MessageID: r.MessageID, Attempt: r.Attempt, Agent: r.Agent, UserName: r.UserName,
		Conversation: r.Conversation, Lane: r.Lane, Trigger: r.Trigger,
		DefinitionHash: r.DefinitionHash, State: r.State, Token: r.Token, GrantID: r.GrantID, JobID: r.JobID,
		WorkerID:  r.WorkerID,
		GrantedAt: r.GrantedAt, LeaseUntil: r.LeaseUntil, Dispatches: r.Dispatches, Losses: r.Losses,
		LastSeq:         r.LastSeq,
		InferenceRounds: r.InferenceRounds, ChargedRounds: r.ChargedRounds, ExecutedCalls: r.ExecutedCalls,
		InputTokens:  r.InputTokens,
		OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens, CacheWriteTokens: r.CacheWriteTokens,
		ReasoningTokens: r.ReasoningTokens,
		UsageEstimated:  r.UsageEstimated,
		CreatedAt:       r.CreatedAt, DueAt: r.DueAt, EndedAt: r.EndedAt, StopReason: r.StopReason,
		ErrorClass:    r.ErrorClass,
		Error:         r.Error,
		InnerDialogue: r.InnerDialogue,
	})
}

// Turn converts a row.
func Turn(r dbsqlc.TurnkeeperTurnsNow) turnkeeper.Turn {
	return turnkeeper.Turn{
		ID: turnkeeper.TurnID(r.ID), MessageID: turnkeeper.MessageID(r.MessageID), Attempt: int(r.Attempt),
		Agent: r.Agent, User: r.UserName, Conversation: r.Conversation, Lane: turnkeeper.Lane(r.Lane),
		Trigger:        turnkeeper.Trigger(r.Trigger),
		DefinitionHash: r.DefinitionHash, State: turnkeeper.TurnState(r.State),
		Token: r.Token, GrantID: turnkeeper.GrantID(OrZero(r.GrantID)), JobID: turnkeeper.JobID(OrZero(r.JobID)),
		WorkerID: turnkeeper.WorkerID(OrZero(r.WorkerID)), Dispatches: int(r.Dispatches), Losses: int(r.Losses),
		CreatedAt: r.CreatedAt, DueAt: OrZero(r.DueAt), GrantedAt: OrZero(r.GrantedAt),
		LeaseUntil: OrZero(r.LeaseUntil),
		EndedAt:    OrZero(r.EndedAt), InferenceRounds: int(r.InferenceRounds), ChargedRounds: int(r.ChargedRounds),
		ExecutedCalls: int(r.ExecutedCalls),
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			CacheWriteTokens: r.CacheWriteTokens, ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
		StopReason: turnkeeper.StopReason(OrZero(r.StopReason)), ErrorClass: OrZero(r.ErrorClass),
		Error:         OrZero(r.Error),
		InnerDialogue: OrZero(r.InnerDialogue), LastSeq: r.LastSeq,
		EventsExpiredAt: OrZero(r.EventsExpiredAt), LeasesExpiredAt: OrZero(r.LeasesExpiredAt),
	}
}

// Round converts a row.
func Round(r dbsqlc.TurnkeeperRound) turnkeeper.Round {
	round := turnkeeper.Round{
		Number: int(r.Round), Charged: r.Charged, Provider: r.Provider, Model: r.Model, Attempts: int(r.Attempts),
		Latency: time.Duration(r.LatencyMs) * time.Millisecond, FinishReason: r.FinishReason,
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			CacheWriteTokens: r.CacheWriteTokens, ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
		Text: r.Text, Reasoning: r.Reasoning, EndedAt: r.EndedAt,
	}
	if r.Raw != nil {
		round.Raw = []byte(*r.Raw)
	}
	round.Recipe = Recipe(r.Request)
	return round
}

// FailedAttempt converts a row.
func FailedAttempt(r dbsqlc.TurnkeeperFailedAttempt) turnlog.FailedAttempt {
	return turnlog.FailedAttempt{
		Round: int(r.Round), Attempt: int(r.Attempt), Provider: r.Provider, Model: r.Model, Class: r.ErrorClass,
		Error: r.Error,
		Text:  r.Text, Reasoning: r.Reasoning, Latency: time.Duration(r.LatencyMs) * time.Millisecond,
		EndedAt: r.EndedAt,
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			CacheWriteTokens: r.CacheWriteTokens, ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
	}
}

// Call converts a row.
func Call(r dbsqlc.TurnkeeperCall) turnkeeper.ToolCall {
	planned, run := r.Arguments, ""
	if r.PlannedArgs != nil {
		planned, run = *r.PlannedArgs, r.Arguments
	}
	return turnkeeper.ToolCall{
		Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}, WireID: r.WireID,
		ProviderID: r.ProviderID,
		Name:       r.Name, Arguments: planned, RunArgs: run, RawArgs: r.RawArgs, ArgsHash: r.ArgsHash,
		Effect: turnkeeper.Effect(r.Effect),
		Paging: r.Paging, State: turnkeeper.CallState(r.State), Starts: int(r.Starts), Nonce: r.Nonce,
		StartedAt: OrZero(r.StartedAt), EndedAt: OrZero(r.EndedAt),
		Duration: time.Duration(OrZero(r.DurationMs)) * time.Millisecond, Shown: r.Shown, Preview: r.Preview,
		OutputID: turnkeeper.OutputID(OrZero(r.OutputID)), Awaited: r.Awaited, LateResult: OrZero(r.LateResult),
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			CacheWriteTokens: r.CacheWriteTokens, ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
	}
}

// Dispatch converts a row.
func Dispatch(r dbsqlc.TurnkeeperLeaseLog) turnkeeper.Dispatch {
	return turnkeeper.Dispatch{
		Lane: turnkeeper.Lane(r.Lane), Token: r.Token, GrantID: turnkeeper.GrantID(r.GrantID),
		TurnID: turnkeeper.TurnID(r.TurnID),
		JobID:  turnkeeper.JobID(OrZero(r.JobID)), WorkerID: turnkeeper.WorkerID(OrZero(r.WorkerID)),
		GrantedAt: r.GrantedAt,
		Until:     r.LeaseUntil, EndedAt: OrZero(r.EndedAt), Outcome: OrZero(r.Outcome),
	}
}

// Event converts a row.
func Event(turn turnkeeper.TurnID, r dbsqlc.EventsAfterRow) turnkeeper.Event {
	return turnkeeper.Event{
		TurnID: turn, Seq: r.Seq, Type: turnkeeper.EventType(r.Type),
		Round: int(r.Round), Block: int(r.Block), Data: r.Data, At: r.At,
	}
}

// Rounds joins the rounds of a turn with their calls, both in order.
func Rounds(rows []dbsqlc.TurnkeeperRound, calls []dbsqlc.TurnkeeperCall) []turnkeeper.Round {
	var joined []turnkeeper.Round
	for _, row := range rows {
		round := Round(row)
		for ; len(calls) > 0 && calls[0].Round == row.Round; calls = calls[1:] {
			round.Calls = append(round.Calls, Call(calls[0]))
		}
		joined = append(joined, round)
	}
	return joined
}

// Recipe returns nil if nothing is stored or this program cannot decode it.
func Recipe(stored []byte) *turnkeeper.Recipe {
	var r turnkeeper.Recipe
	if len(stored) == 0 || json.Unmarshal(stored, &r) != nil {
		return nil
	}
	return &r
}

// Texts returns ids as plain texts.
func Texts[T ~string](ids []T) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	return texts
}
