package storage_test

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// A scheduler that is stopped during its tick holds a row lock. A worker that registers its agents
// meanwhile waits for the lock instead of failing.
func TestRegisteringAgentsOutlastsAStoppedTick(t *testing.T) {
	h := newEnv(t)
	h.Register("clerk", false, turnkeeper.Schedule{Name: "hourly", Cron: "0 * * * *", TimeZone: "UTC"})
	tick, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tick.Rollback(t.Context()) }()
	if _, err := tick.Exec(t.Context(), "select from schedules for update"); err != nil {
		t.Fatal(err)
	}
	refused := 0
	goesOn := func(zapcore.Entry) error {
		if refused++; refused == 2 {
			return tick.Rollback(t.Context())
		}
		return nil
	}
	core, _ := observer.New(zap.WarnLevel)
	starting := storagetest.OpenWith(t, storage.Options{
		URL: h.URL, LockTimeout: 50 * time.Millisecond, Log: zap.New(core, zap.Hooks(goesOn)),
	})
	changed := storagetest.Registration("clerk", false, turnkeeper.Schedule{Name: "hourly", Cron: "5 * * * *",
		TimeZone: "UTC"})
	if err := starting.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{changed}); err != nil {
		t.Fatal(err)
	}
	if refused < 2 { // on a busy machine a later one may be refused too
		t.Errorf("%d tries were refused", refused)
	}
	if cron := storagetest.One[string](h, "select cron from schedules"); cron != "5 * * * *" {
		t.Errorf("the schedule is %q", cron)
	}
}
