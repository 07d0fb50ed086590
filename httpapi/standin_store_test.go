package httpapi_test

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// The methods of a standIn that return filled values, whatever they are asked for.

func (s *standIn) AcceptResponse(ctx context.Context, a operate.NewResponse) (turnkeeper.MessageID, error) {
	return told[turnkeeper.MessageID](ctx, s, "AcceptResponse", a)
}

func (s *standIn) AnswerAsk(ctx context.Context, a asks.ID, b asks.Answer) (asks.State, error) {
	return told[asks.State](ctx, s, "AnswerAsk", a, b)
}

func (s *standIn) Aside(ctx context.Context) ([]granting.Aside, error) {
	return told[[]granting.Aside](ctx, s, "Aside")
}

func (s *standIn) AskSender(ctx context.Context, a asks.ID) (int64, error) {
	return told[int64](ctx, s, "AskSender", a)
}

func (s *standIn) CancelMessage(ctx context.Context, a turnkeeper.MessageID, b string) (operate.Ended, error) {
	return told[operate.Ended](ctx, s, "CancelMessage", a, b)
}

func (s *standIn) CancelTurn(ctx context.Context, a turnkeeper.TurnID, b string) (operate.Ended, error) {
	return told[operate.Ended](ctx, s, "CancelTurn", a, b)
}

func (s *standIn) CountOpenAsks(ctx context.Context, a []string, b int) (int, error) {
	return told[int](ctx, s, "CountOpenAsks", a, b)
}

func (s *standIn) CreateConversation(ctx context.Context, a operate.Created, b int64, c string) (time.Time, error) {
	return told[time.Time](ctx, s, "CreateConversation", a, b, c)
}

func (s *standIn) DaySpend(ctx context.Context) ([]operate.DaySpend, error) {
	return told[[]operate.DaySpend](ctx, s, "DaySpend")
}

func (s *standIn) Definition(ctx context.Context, a string) ([]byte, error) {
	return told[[]byte](ctx, s, "Definition", a)
}

func (s *standIn) Deliveries(ctx context.Context, a string, b operate.Page) ([]outbox.Delivery, error) {
	return told[[]outbox.Delivery](ctx, s, "Deliveries", a, b)
}

func (s *standIn) FindMessages(ctx context.Context, a operate.Search) ([]waiting.Message, int64, error) {
	return toldTwo[[]waiting.Message, int64](ctx, s, "FindMessages", a)
}

func (s *standIn) FindTurns(ctx context.Context, a operate.Search) ([]waiting.Turn, int64, error) {
	return toldTwo[[]waiting.Turn, int64](ctx, s, "FindTurns", a)
}

func (s *standIn) FinishMessage(ctx context.Context, a turnkeeper.MessageID, b string) (operate.Ended, error) {
	return told[operate.Ended](ctx, s, "FinishMessage", a, b)
}

func (s *standIn) FinishTurn(ctx context.Context, a turnkeeper.TurnID, b string) (operate.Ended, error) {
	return told[operate.Ended](ctx, s, "FinishTurn", a, b)
}

func (s *standIn) KeptFor(ctx context.Context) (time.Duration, error) {
	return told[time.Duration](ctx, s, "KeptFor")
}

func (s *standIn) Lanes(ctx context.Context, a operate.Page) ([]operate.LaneView, error) {
	return told[[]operate.LaneView](ctx, s, "Lanes", a)
}

func (s *standIn) LatestReplies(ctx context.Context, a operate.Page) ([]turnkeeper.Reply, error) {
	return told[[]turnkeeper.Reply](ctx, s, "LatestReplies", a)
}

func (s *standIn) Levels(ctx context.Context) (operate.Levels, error) {
	return told[operate.Levels](ctx, s, "Levels")
}

func (s *standIn) ListAsks(ctx context.Context, a operate.AskFilter) ([]operate.Ask, error) {
	return told[[]operate.Ask](ctx, s, "ListAsks", a)
}

func (s *standIn) LongWaits(ctx context.Context, a time.Duration) ([]operate.LongWait, error) {
	return told[[]operate.LongWait](ctx, s, "LongWaits", a)
}

func (s *standIn) LossyTurns(ctx context.Context, a time.Duration) ([]operate.LossyTurn, error) {
	return told[[]operate.LossyTurn](ctx, s, "LossyTurns", a)
}

func (s *standIn) Messages(ctx context.Context, a operate.Page) ([]waiting.Message, error) {
	return told[[]waiting.Message](ctx, s, "Messages", a)
}

func (s *standIn) Models(ctx context.Context) ([]modelhealth.Health, error) {
	return told[[]modelhealth.Health](ctx, s, "Models")
}

func (s *standIn) OpenTurns(ctx context.Context, a int) ([]waiting.Turn, error) {
	return told[[]waiting.Turn](ctx, s, "OpenTurns", a)
}

func (s *standIn) PauseSchedule(ctx context.Context, a, b string, c bool, d string) error {
	return s.does(ctx, "PauseSchedule", a, b, c, d)
}

func (s *standIn) PauseScheduler(ctx context.Context, a string) error {
	return s.does(ctx, "PauseScheduler", a)
}

func (s *standIn) PinLevel(ctx context.Context, a operate.Pin) error {
	return s.does(ctx, "PinLevel", a)
}

func (s *standIn) Ping(ctx context.Context) error {
	return s.does(ctx, "Ping")
}

func (s *standIn) Queue(ctx context.Context) (operate.Totals, error) {
	return told[operate.Totals](ctx, s, "Queue")
}

func (s *standIn) Replies(ctx context.Context, a operate.Page) ([]turnkeeper.Reply, error) {
	return told[[]turnkeeper.Reply](ctx, s, "Replies", a)
}

func (s *standIn) ResumeScheduler(ctx context.Context) error {
	return s.does(ctx, "ResumeScheduler")
}

func (s *standIn) RetriesOf(ctx context.Context, a turnkeeper.MessageID) (turnkeeper.MessageID,
	turnkeeper.MessageID, error) {
	return toldTwo[turnkeeper.MessageID, turnkeeper.MessageID](ctx, s, "RetriesOf", a)
}

func (s *standIn) Retry(ctx context.Context, a turnkeeper.MessageID, b bool) (operate.Retried, error) {
	return told[operate.Retried](ctx, s, "Retry", a, b)
}

func (s *standIn) RetryFailed(ctx context.Context, a operate.FailedScope) ([]operate.BulkRetried, error) {
	return told[[]operate.BulkRetried](ctx, s, "RetryFailed", a)
}

func (s *standIn) RightsToRevoke(ctx context.Context) ([]string, error) {
	return told[[]string](ctx, s, "RightsToRevoke")
}

func (s *standIn) RunSchedule(ctx context.Context, a, b string) (turnkeeper.MessageID, bool, error) {
	return toldTwo[turnkeeper.MessageID, bool](ctx, s, "RunSchedule", a, b)
}

func (s *standIn) SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error) {
	return told[operate.SchedulerSettings](ctx, s, "SchedulerSettings")
}

func (s *standIn) ServerFacts(ctx context.Context) (storage.ServerFacts, error) {
	return told[storage.ServerFacts](ctx, s, "ServerFacts")
}

func (s *standIn) SignOut(ctx context.Context, a string) error {
	return s.does(ctx, "SignOut", a)
}

func (s *standIn) StoredParts(ctx context.Context) (operate.StoredParts, error) {
	return told[operate.StoredParts](ctx, s, "StoredParts")
}

func (s *standIn) Totals(ctx context.Context, a time.Duration) (operate.Totals, error) {
	return told[operate.Totals](ctx, s, "Totals", a)
}

func (s *standIn) TryWrite(ctx context.Context) error {
	return s.does(ctx, "TryWrite")
}

func (s *standIn) Turns(ctx context.Context, a operate.Page) ([]waiting.Turn, error) {
	return told[[]waiting.Turn](ctx, s, "Turns", a)
}

func (s *standIn) TurnsOf(ctx context.Context, a turnkeeper.MessageID) ([]waiting.Turn, error) {
	return told[[]waiting.Turn](ctx, s, "TurnsOf", a)
}

func (s *standIn) UnpinLevel(ctx context.Context, a string) error {
	return s.does(ctx, "UnpinLevel", a)
}

func (s *standIn) Webhooks(ctx context.Context) ([]operate.WebhookView, error) {
	return told[[]operate.WebhookView](ctx, s, "Webhooks")
}

func (s *standIn) Workers(ctx context.Context) ([]presence.Heartbeat, error) {
	return told[[]presence.Heartbeat](ctx, s, "Workers")
}
