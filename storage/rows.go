package storage

import (
	"encoding/json"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// Rows of the database as nouns.

func mapRows[R, N any](rows []R, noun func(R) N) []N {
	nouns := make([]N, len(rows))
	for i, row := range rows {
		nouns[i] = noun(row)
	}
	return nouns
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func messageOf(r dbsqlc.TurnkeeperMessage) turnkeeper.Message {
	return turnkeeper.Message{
		ID: turnkeeper.MessageID(r.ID), Agent: r.Agent, Conversation: r.Conversation, Lane: turnkeeper.Lane(r.Lane),
		Body: r.Body, Key: orZero(r.IdempotencyKey), Priority: int(r.Priority), Trigger: turnkeeper.Trigger(r.Trigger),
		Schedule: orZero(r.Schedule), Slot: orZero(r.Slot), State: turnkeeper.MessageState(r.State), Attempts: int(r.Attempts),
		DueAt: r.DueAt, AcceptedAt: r.AcceptedAt, ClosedAt: orZero(r.ClosedAt), TurnID: turnkeeper.TurnID(orZero(r.TurnID)),
		LastError: orZero(r.LastError), Faults: int(r.Faults), TraceParent: orZero(r.TraceParent),
	}
}

func replyOf(r dbsqlc.TurnkeeperReply) turnkeeper.Reply {
	return turnkeeper.Reply{
		ID: turnkeeper.ReplyID(r.ID), MessageID: turnkeeper.MessageID(r.MessageID), TurnID: turnkeeper.TurnID(r.TurnID),
		Agent: r.Agent, Conversation: r.Conversation, Outcome: turnkeeper.TurnState(r.Outcome), Body: r.Body, CreatedAt: r.CreatedAt,
		StopReason: turnkeeper.StopReason(orZero(r.StopReason)), ErrorClass: orZero(r.ErrorClass), Calls: replyCallsOf(r.Calls),
		ParentTurn: turnkeeper.TurnID(orZero(r.ParentTurnID)),
	}
}

// A storedCall is an entry of what the function turnkeeper.reply_calls writes.
type storedCall struct {
	Ordinal  int                  `json:"ordinal"`
	ID       string               `json:"id"`
	Name     string               `json:"name"`
	Effect   turnkeeper.Effect    `json:"effect"`
	State    turnkeeper.CallState `json:"state"`
	Duration *int64               `json:"duration_ms"`
	Error    string               `json:"error"`
}

func replyCallsOf(stored []byte) []turnkeeper.ReplyCall {
	var rows []storedCall
	if err := json.Unmarshal(stored, &rows); err != nil {
		return nil // there is no reply
	}
	return mapRows(rows, func(r storedCall) turnkeeper.ReplyCall {
		call := turnkeeper.ReplyCall{Ordinal: r.Ordinal, Name: r.Name, Effect: r.Effect, State: r.State, Duration: -1, Problem: r.Error}
		_, _ = fmt.Sscanf(r.ID, "round-%d-tool-%d", &call.Key.Round, &call.Key.Ordinal)
		if r.Duration != nil {
			call.Duration = time.Duration(*r.Duration) * time.Millisecond
		}
		return call
	})
}

func turnOf(r dbsqlc.TurnkeeperTurn) turnkeeper.Turn {
	return turnkeeper.Turn{
		ID: turnkeeper.TurnID(r.ID), MessageID: turnkeeper.MessageID(r.MessageID), Attempt: int(r.Attempt),
		Agent: r.Agent, Conversation: r.Conversation, Lane: turnkeeper.Lane(r.Lane), Trigger: turnkeeper.Trigger(r.Trigger),
		DefinitionHash: r.DefinitionHash, State: turnkeeper.TurnState(r.State),
		Token: r.Token, GrantID: turnkeeper.GrantID(orZero(r.GrantID)), JobID: turnkeeper.JobID(orZero(r.JobID)),
		WorkerID: turnkeeper.WorkerID(orZero(r.WorkerID)), Dispatches: int(r.Dispatches), Losses: int(r.Losses),
		CreatedAt: r.CreatedAt, DueAt: orZero(r.DueAt), GrantedAt: orZero(r.GrantedAt), LeaseUntil: orZero(r.LeaseUntil),
		EndedAt: orZero(r.EndedAt), InferenceRounds: int(r.InferenceRounds), ChargedRounds: int(r.ChargedRounds),
		ExecutedCalls: int(r.ExecutedCalls),
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
		StopReason: turnkeeper.StopReason(orZero(r.StopReason)), ErrorClass: orZero(r.ErrorClass), Error: orZero(r.Error),
		InnerDialogue: orZero(r.InnerDialogue), LastSeq: r.LastSeq,
	}
}

func roundOf(r dbsqlc.TurnkeeperRound) turnkeeper.Round {
	round := turnkeeper.Round{
		Number: int(r.Round), Charged: r.Charged, Provider: r.Provider, Model: r.Model, Attempts: int(r.Attempts),
		Latency: time.Duration(r.LatencyMs) * time.Millisecond, FinishReason: r.FinishReason,
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
		Text: r.Text, Reasoning: r.Reasoning, EndedAt: r.EndedAt,
	}
	if r.Raw != nil {
		round.Raw = []byte(*r.Raw)
	}
	round.Recipe = recipeOf(r.Request)
	return round
}

func failedOf(r dbsqlc.TurnkeeperFailedAttempt) turnkeeper.FailedAttempt {
	return turnkeeper.FailedAttempt{
		Round: int(r.Round), Attempt: int(r.Attempt), Provider: r.Provider, Model: r.Model, Class: r.ErrorClass, Error: r.Error,
		Text: r.Text, Reasoning: r.Reasoning, Latency: time.Duration(r.LatencyMs) * time.Millisecond, EndedAt: r.EndedAt,
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
	}
}

func callOf(r dbsqlc.TurnkeeperCall) turnkeeper.ToolCall {
	return turnkeeper.ToolCall{
		Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}, WireID: r.WireID, ProviderID: r.ProviderID,
		Name: r.Name, Arguments: r.Arguments, RawArgs: r.RawArgs, ArgsHash: r.ArgsHash, Effect: turnkeeper.Effect(r.Effect),
		Paging: r.Paging, State: turnkeeper.CallState(r.State), Starts: int(r.Starts), Nonce: r.Nonce,
		StartedAt: orZero(r.StartedAt), EndedAt: orZero(r.EndedAt),
		Duration: time.Duration(orZero(r.DurationMs)) * time.Millisecond, Shown: r.Shown, Preview: r.Preview,
		OutputID: turnkeeper.OutputID(orZero(r.OutputID)), Elsewhere: r.Elsewhere, LateResult: orZero(r.LateResult),
		Usage: turnkeeper.Usage{
			InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens,
			ReasoningTokens: r.ReasoningTokens, Estimated: r.UsageEstimated,
		},
	}
}

func dispatchOf(r dbsqlc.TurnkeeperLeaseLog) turnkeeper.Dispatch {
	return turnkeeper.Dispatch{
		Lane: turnkeeper.Lane(r.Lane), Token: r.Token, GrantID: turnkeeper.GrantID(r.GrantID), TurnID: turnkeeper.TurnID(r.TurnID),
		JobID: turnkeeper.JobID(r.JobID), WorkerID: turnkeeper.WorkerID(orZero(r.WorkerID)), GrantedAt: r.GrantedAt,
		Until: r.LeaseUntil, EndedAt: orZero(r.EndedAt), Outcome: orZero(r.Outcome),
	}
}

func eventOf(r dbsqlc.TurnkeeperTurnEvent) turnkeeper.Event {
	return turnkeeper.Event{
		TurnID: turnkeeper.TurnID(r.TurnID), Seq: r.Seq, Type: turnkeeper.EventType(r.Type),
		Round: int(r.Round), Block: int(r.Block), Data: r.Data, At: r.At,
	}
}

// rounds joins the rounds of one turn with their calls, both in order.
func rounds(rows []dbsqlc.TurnkeeperRound, calls []dbsqlc.TurnkeeperCall) []turnkeeper.Round {
	var joined []turnkeeper.Round
	for _, row := range rows {
		round := roundOf(row)
		for _, call := range calls {
			if call.TurnID == row.TurnID && call.Round == row.Round {
				round.Calls = append(round.Calls, callOf(call))
			}
		}
		joined = append(joined, round)
	}
	return joined
}
