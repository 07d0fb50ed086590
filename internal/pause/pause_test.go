package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper/internal/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := pause.For(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("waited %s, error %v", time.Since(began), err)
		}
		cause := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := pause.For(ctx, time.Hour); !errors.Is(err, cause) {
			t.Errorf("error %v, want the cause", err)
		}
	})
}
