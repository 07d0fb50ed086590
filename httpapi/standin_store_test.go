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
	return told[turnkeeper.MessageID](s, ctx, "AcceptResponse", a)
}

func (s *standIn) AnswerAsk(ctx context.Context, a asks.ID, b asks.Answer) (asks.State, error) {
	return told[asks.State](s, ctx, "AnswerAsk", a, b)
}

func (s *standIn) Aside(ctx context.Context) ([]granting.Aside, error) {
	return told[[]granting.Aside](s, ctx, "Aside")
}

func (s *standIn) AskSender(ctx context.Context, a asks.ID) (int64, error) {
	return told[int64](s, ctx, "AskSender", a)
}

func (s *standIn) CancelMessage(ctx context.Context, a turnkeeper.MessageID, b string) (operate.Ended, error) {
	return told[operate.Ended](s, ctx, "CancelMessage", a, b)
}

func (s *standIn) CancelTurn(ctx context.Context, a turnkeeper.TurnID, b string) (operate.Ended, error) {
	return told[operate.Ended](s, ctx, "CancelTurn", a, b)
}

func (s *standIn) CountOpenAsks(ctx context.Context, a []string, b int) (int, error) {
	return told[int](s, ctx, "CountOpenAsks", a, b)
}

func (s *standIn) CreateConversation(ctx context.Context, a operate.Created, b int64, c string) (time.Time, error) {
	return told[time.Time](s, ctx, "CreateConversation", a, b, c)
}

func (s *standIn) DaySpend(ctx context.Context) ([]operate.DaySpend, error) {
	return told[[]operate.DaySpend](s, ctx, "DaySpend")
}

func (s *standIn) Definition(ctx context.Context, a string) ([]byte, error) {
	return told[[]byte](s, ctx, "Definition", a)
}

func (s *standIn) Deliveries(ctx context.Context, a string, b operate.Page) ([]outbox.Delivery, error) {
	return told[[]outbox.Delivery](s, ctx, "Deliveries", a, b)
}

func (s *standIn) FindMessages(ctx context.Context, a operate.Search) ([]waiting.Message, int64, error) {
	return toldTwo[[]waiting.Message, int64](s, ctx, "FindMessages", a)
}

func (s *standIn) FindTurns(ctx context.Context, a operate.Search) ([]waiting.Turn, int64, error) {
	return toldTwo[[]waiting.Turn, int64](s, ctx, "FindTurns", a)
}

func (s *standIn) FinishMessage(ctx context.Context, a turnkeeper.MessageID, b string) (operate.Ended, error) {
	return told[operate.Ended](s, ctx, "FinishMessage", a, b)
}

func (s *standIn) FinishTurn(ctx context.Context, a turnkeeper.TurnID, b string) (operate.Ended, error) {
	return told[operate.Ended](s, ctx, "FinishTurn", a, b)
}

func (s *standIn) KeptFor(ctx context.Context) (time.Duration, error) {
	return told[time.Duration](s, ctx, "KeptFor")
}

func (s *standIn) Lanes(ctx context.Context, a operate.Page) ([]operate.LaneView, error) {
	return told[[]operate.LaneView](s, ctx, "Lanes", a)
}

func (s *standIn) LatestReplies(ctx context.Context, a operate.Page) ([]turnkeeper.Reply, error) {
	return told[[]turnkeeper.Reply](s, ctx, "LatestReplies", a)
}

func (s *standIn) Levels(ctx context.Context) (operate.Levels, error) {
	return told[operate.Levels](s, ctx, "Levels")
}

func (s *standIn) ListAsks(ctx context.Context, a operate.AskFilter) ([]operate.Ask, error) {
	return told[[]operate.Ask](s, ctx, "ListAsks", a)
}

func (s *standIn) LongWaits(ctx context.Context, a time.Duration) ([]operate.LongWait, error) {
	return told[[]operate.LongWait](s, ctx, "LongWaits", a)
}

func (s *standIn) LossyTurns(ctx context.Context, a time.Duration) ([]operate.LossyTurn, error) {
	return told[[]operate.LossyTurn](s, ctx, "LossyTurns", a)
}

func (s *standIn) Messages(ctx context.Context, a operate.Page) ([]waiting.Message, error) {
	return told[[]waiting.Message](s, ctx, "Messages", a)
}

func (s *standIn) Models(ctx context.Context) ([]modelhealth.Health, error) {
	return told[[]modelhealth.Health](s, ctx, "Models")
}

func (s *standIn) OpenTurns(ctx context.Context, a int) ([]waiting.Turn, error) {
	return told[[]waiting.Turn](s, ctx, "OpenTurns", a)
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
	return told[operate.Totals](s, ctx, "Queue")
}

func (s *standIn) Replies(ctx context.Context, a operate.Page) ([]turnkeeper.Reply, error) {
	return told[[]turnkeeper.Reply](s, ctx, "Replies", a)
}

func (s *standIn) ResumeScheduler(ctx context.Context) error {
	return s.does(ctx, "ResumeScheduler")
}

func (s *standIn) RetriesOf(ctx context.Context, a turnkeeper.MessageID) (turnkeeper.MessageID, turnkeeper.MessageID, error) {
	return toldTwo[turnkeeper.MessageID, turnkeeper.MessageID](s, ctx, "RetriesOf", a)
}

func (s *standIn) Retry(ctx context.Context, a turnkeeper.MessageID, b bool) (operate.Retried, error) {
	return told[operate.Retried](s, ctx, "Retry", a, b)
}

func (s *standIn) RetryFailed(ctx context.Context, a operate.FailedScope) ([]operate.BulkRetried, error) {
	return told[[]operate.BulkRetried](s, ctx, "RetryFailed", a)
}

func (s *standIn) RightsToRevoke(ctx context.Context) ([]string, error) {
	return told[[]string](s, ctx, "RightsToRevoke")
}

func (s *standIn) RunSchedule(ctx context.Context, a, b string) (turnkeeper.MessageID, bool, error) {
	return toldTwo[turnkeeper.MessageID, bool](s, ctx, "RunSchedule", a, b)
}

func (s *standIn) SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error) {
	return told[operate.SchedulerSettings](s, ctx, "SchedulerSettings")
}

func (s *standIn) ServerFacts(ctx context.Context) (storage.ServerFacts, error) {
	return told[storage.ServerFacts](s, ctx, "ServerFacts")
}

func (s *standIn) SignOut(ctx context.Context, a string) error {
	return s.does(ctx, "SignOut", a)
}

func (s *standIn) StoredParts(ctx context.Context) (operate.StoredParts, error) {
	return told[operate.StoredParts](s, ctx, "StoredParts")
}

func (s *standIn) Totals(ctx context.Context, a time.Duration) (operate.Totals, error) {
	return told[operate.Totals](s, ctx, "Totals", a)
}

func (s *standIn) TryWrite(ctx context.Context) error {
	return s.does(ctx, "TryWrite")
}

func (s *standIn) Turns(ctx context.Context, a operate.Page) ([]waiting.Turn, error) {
	return told[[]waiting.Turn](s, ctx, "Turns", a)
}

func (s *standIn) TurnsOf(ctx context.Context, a turnkeeper.MessageID) ([]waiting.Turn, error) {
	return told[[]waiting.Turn](s, ctx, "TurnsOf", a)
}

func (s *standIn) UnpinLevel(ctx context.Context, a string) error {
	return s.does(ctx, "UnpinLevel", a)
}

func (s *standIn) Webhooks(ctx context.Context) ([]operate.WebhookView, error) {
	return told[[]operate.WebhookView](s, ctx, "Webhooks")
}

func (s *standIn) Workers(ctx context.Context) ([]presence.Heartbeat, error) {
	return told[[]presence.Heartbeat](s, ctx, "Workers")
}
